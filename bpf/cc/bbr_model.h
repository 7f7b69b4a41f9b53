/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* BBR's model of the path: bandwidth, aggregation, what may be in flight, and the states that follow from it. See bbr.h. */
#ifndef PLAIT_CC_BBR_MODEL_H
#define PLAIT_CC_BBR_MODEL_H

static __always_inline __u32 bbr_bw(const struct bbr *b)
{
	__u32 bw = 0;

	for (int i = 0; i < BBR_BW_ROUNDS; i++)
		bw = max(bw, b->bw[i]);
	return bw;
}

static __always_inline __u64 bbr_rate_Bps(struct sock *sk, __u32 bw, __u32 gain)
{
	__u64 rate = (__u64)bw * tcp_sk(sk)->mss_cache * gain / BBR_ONE;

	rate = rate * (USEC_PER_SEC / 100 * BBR_PACING_PERCENT) >> BBR_BW_SHIFT;
	return min(rate, (__u64)sk->sk_max_pacing_rate);
}

static __always_inline __u32 bbr_min_segs(struct sock *sk)
{
	return sk->sk_pacing_rate < BBR_MIN_TSO_RATE_BPS / 8 ? 1 : 2;
}

/* Segments of a bundle at this rate: what goes out in about a millisecond (sk_pacing_shift 10). */
static __always_inline __u32 bbr_bundle(struct sock *sk)
{
	__u64 bytes = min((__u64)sk->sk_pacing_rate >> (sk->sk_pacing_shift & 63), (__u64)BBR_MAX_TSO_BYTES);
	__u32 segs = bytes / max(tcp_sk(sk)->mss_cache, 1u);

	return min(max(segs, bbr_min_segs(sk)), (__u32)BBR_MAX_TSO_SEGS);
}

/* Packets on the path at this gain, rounded up: rounding down would feed back. */
static __always_inline __u32 bbr_bdp(const struct bbr *b, __u32 gain)
{
	if (b->min_rtt_us == ~0u) /* no sample yet: not more than at the start */
		return TCP_INIT_CWND;
	return (((__u64)bbr_bw(b) * b->min_rtt_us * gain >> 8) + BBR_BW_UNIT - 1) >> BBR_BW_SHIFT;
}

/* Three bundles are elsewhere: in the queueing discipline, in segmentation, in the receiver's aggregation. Even, for delayed ACKs. */
static __always_inline __u32 bbr_with_bundles(struct sock *sk, const struct bbr *b, __u32 packets)
{
	packets = (packets + 3 * bbr_bundle(sk) + 1) & ~1u;
	if (b->mode == BBR_PROBE_BW && b->phase == 0)
		packets += 2; /* 5/4 of little must still be more */
	return packets;
}

static __always_inline __u32 bbr_inflight(struct sock *sk, const struct bbr *b, __u32 gain)
{
	return bbr_with_bundles(sk, b, bbr_bdp(b, gain));
}

/* What will be on the path when the next packet leaves: paced packets wait in this host, and others arrive meanwhile. */
static __noinline __u32 bbr_in_network(struct sock *sk, const struct bbr *b, __u32 inflight)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u64 now_ns = tp->tcp_clock_cache, departure_ns = max(tp->tcp_wstamp_ns, now_ns);
	__u32 arrived = (__u64)bbr_bw(b) * ((departure_ns - now_ns) / 1000) >> BBR_BW_SHIFT;

	if (b->pacing_gain > BBR_ONE)
		inflight += bbr_bundle(sk);
	return arrived >= inflight ? 0 : inflight - arrived;
}

static __always_inline __u32 bbr_aggregation(const struct bbr *b)
{
	__u32 most = (__u64)bbr_bw(b) * BBR_EXTRA_ACKED_US >> BBR_BW_SHIFT;

	if (!b->full_bw_reached)
		return 0;
	return min(max(b->extra_acked, b->extra_acked_past), most);
}

/* Too few packets were there to show the path's bandwidth: the application had none, or PROBE_RTT held them back. */
static __always_inline bool bbr_limited(struct bbr *b, const struct rate_sample *rs)
{
	__u32 sent_at = rs->prior_delivered;

	if (b->limited && b->mode != BBR_PROBE_RTT && (__s32)(sent_at - b->limited_to) > 0)
		b->limited = 0;
	return rs->is_app_limited || (b->limited && (__s32)(sent_at - b->limited_from) >= 0);
}

/* Maxima age by the round trips that have gone by, but only with a sample that counts: while there is none, what is known is all there is. */
static __always_inline void bbr_age_bw(struct bbr *b)
{
	for (int r = 0; r < BBR_BW_ROUNDS && b->bw_age; r++) {
		for (int i = BBR_BW_ROUNDS - 1; i > 0; i--)
			b->bw[i] = b->bw[i - 1];
		b->bw[0] = 0;
		b->bw_age--;
	}
}

static __noinline int bbr_update_bw(const struct tcp_sock *tp, struct bbr *b, const struct rate_sample *rs)
{
	__s32 delivered = rs->delivered;
	long interval_us = rs->interval_us;
	__u32 bw;

	b->round_start = 0;
	if (delivered < 0 || interval_us <= 0)
		return 0;
	if ((__s32)(rs->prior_delivered - b->next_round_delivered) >= 0) {
		b->next_round_delivered = tp->delivered;
		b->round_start = 1;
		b->conservation = 0;
		b->bw_age = min(b->bw_age + 1, BBR_BW_ROUNDS);
	}
	bw = (__u64)delivered * BBR_BW_UNIT / (__u64)interval_us;
	if (!bbr_limited(b, rs) || bw >= bbr_bw(b)) {
		bbr_age_bw(b);
		b->bw[0] = max(b->bw[0], bw);
	}
	return 0;
}

/* How many packets are acknowledged beyond bw * time: as many must be in flight on top for sending not to stop meanwhile. */
static __noinline int bbr_update_aggregation(const struct tcp_sock *tp, struct bbr *b, const struct rate_sample *rs)
{
	__u64 now_us = tp->delivered_mstamp, expected;
	__u32 acked = rs->acked_sacked, extra;

	if (!acked || rs->delivered < 0 || rs->interval_us <= 0)
		return 0;
	if (b->round_start && ++b->extra_acked_rounds >= BBR_EXTRA_ACKED_ROUNDS) {
		b->extra_acked_rounds = 0;
		b->extra_acked_past = b->extra_acked;
		b->extra_acked = 0;
	}
	expected = (__u64)bbr_bw(b) * (__u32)(now_us - b->epoch_us) >> BBR_BW_SHIFT;
	if (b->epoch_acked <= expected || b->epoch_acked + acked >= BBR_EPOCH_PACKETS) {
		b->epoch_acked = 0;
		b->epoch_us = now_us;
		expected = 0;
	}
	b->epoch_acked = min(b->epoch_acked + acked, (__u32)BBR_EPOCH_PACKETS - 1);
	extra = min(b->epoch_acked - (__u32)expected, min(tp->snd_cwnd, 0xffffu));
	b->extra_acked = max(b->extra_acked, extra);
	return 0;
}

static __always_inline void bbr_next_phase(const struct tcp_sock *tp, struct bbr *b)
{
	b->phase = (b->phase + 1) % BBR_CYCLE_PHASES;
	b->phase_us = tp->delivered_mstamp;
}

/* Any phase but the draining one: there is no queue to drain yet. */
static __always_inline void bbr_enter_probe_bw(const struct tcp_sock *tp, struct bbr *b)
{
	b->mode = BBR_PROBE_BW;
	b->phase = BBR_CYCLE_PHASES - 1 - bpf_get_prandom_u32() % (BBR_CYCLE_PHASES - 1);
	bbr_next_phase(tp, b);
}

/* A phase lasts a round trip; probing until the pipe holds what it asks for or drops, draining only as long as needed. */
static __always_inline bool bbr_phase_over(struct sock *sk, const struct bbr *b, const struct rate_sample *rs)
{
	bool full_length = tcp_sk(sk)->delivered_mstamp - b->phase_us > b->min_rtt_us;
	__u32 inflight;

	if (b->pacing_gain == BBR_ONE)
		return full_length;
	inflight = bbr_in_network(sk, b, rs->prior_in_flight);
	if (b->pacing_gain > BBR_ONE)
		return full_length && (rs->losses || inflight >= bbr_inflight(sk, b, b->pacing_gain));
	return full_length || inflight <= bbr_inflight(sk, b, BBR_ONE);
}

static __noinline int bbr_update_phase(struct sock *sk, struct bbr *b, const struct rate_sample *rs)
{
	if (b->mode == BBR_PROBE_BW && bbr_phase_over(sk, b, rs))
		bbr_next_phase(tcp_sk(sk), b);
	return 0;
}

static __noinline int bbr_check_full_bw(struct bbr *b, const struct rate_sample *rs)
{
	__u32 bw = bbr_bw(b);

	if (b->full_bw_reached || !b->round_start || bbr_limited(b, rs))
		return 0;
	if (bw >= (__u64)b->full_bw * 5 / 4) {
		b->full_bw = bw;
		b->full_bw_rounds = 0;
		return 0;
	}
	b->full_bw_reached = ++b->full_bw_rounds >= BBR_FULL_BW_ROUNDS;
	return 0;
}

static __noinline int bbr_check_drain(struct sock *sk, struct bbr *b)
{
	struct tcp_sock *tp = tcp_sk_mut(sk);

	if (b->mode == BBR_STARTUP && b->full_bw_reached) {
		b->mode = BBR_DRAIN;
		tp->snd_ssthresh = bbr_inflight(sk, b, BBR_ONE);
	}
	if (b->mode == BBR_DRAIN && bbr_in_network(sk, b, packets_in_flight(tp)) <= bbr_inflight(sk, b, BBR_ONE))
		bbr_enter_probe_bw(tp, b);
	return 0;
}

static __always_inline void bbr_update_gains(struct bbr *b)
{
	b->pacing_gain = BBR_ONE;
	b->cwnd_gain = BBR_HIGH_GAIN;
	switch (b->mode) {
	case BBR_STARTUP:
		b->pacing_gain = BBR_HIGH_GAIN;
		break;
	case BBR_DRAIN:
		b->pacing_gain = BBR_DRAIN_GAIN;
		break;
	case BBR_PROBE_BW:
		b->cwnd_gain = BBR_CWND_GAIN;
		if (b->phase == 0)
			b->pacing_gain = BBR_ONE * 5 / 4;
		else if (b->phase == 1)
			b->pacing_gain = BBR_ONE * 3 / 4;
		break;
	default:
		b->cwnd_gain = BBR_ONE;
	}
}

#endif

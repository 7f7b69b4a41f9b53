/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * BBR, version 1: a model of the path instead of an answer to losses.
 *
 *	bw      = most packets/us delivered over a round trip, in the last 10 of them; what an application that pauses does not fill is none
 *	rtt     = least round trip of the last 10 s
 *	pacing  = gain * bw * 0.99      window = gain * bw * rtt + what bundles and aggregated ACKs hold back
 *
 *	STARTUP    gain 2/ln 2 (doubles per round trip), until bw has not grown by 1/4 in three round trips
 *	DRAIN      the inverse, until what is in flight fits the path
 *	PROBE_BW   gains 5/4, 3/4, 1, 1, 1, 1, 1, 1, about a round trip each, from a random one but the second; window 2 bw * rtt
 *	PROBE_RTT  if rtt is 10 s old: 4 packets in flight for 200 ms and a round trip
 *
 * The first round trip of a recovery sends as much as arrives; after it the window from before is back.
 *
 * N. Cardwell, Y. Cheng, C. S. Gunn, S. H. Yeganeh, V. Jacobson, BBR: Congestion-Based Congestion Control, ACM Queue 14(5),
 * 2016; draft-cardwell-iccrg-bbr-congestion-control-00. Left out: the long-term sampling that recognizes policers. The maximum
 * over 10 round trips is exact; the kernel's keeps three values and may come out lower. bw has 24 binary places, gains 8.
 */
#ifndef PLAIT_CC_BBR_H
#define PLAIT_CC_BBR_H

#include "../window.h"
#include "burst.h"

enum { BBR_STARTUP, BBR_DRAIN, BBR_PROBE_BW, BBR_PROBE_RTT };

enum {
	BBR_BW_SHIFT = 24,
	BBR_BW_UNIT = 1 << BBR_BW_SHIFT,
	BBR_BW_ROUNDS = 11, /* the present one and the 10 before */
	BBR_ONE = 256,
	BBR_HIGH_GAIN = BBR_ONE * 2885 / 1000 + 1, /* 2/ln 2, rounded up */
	BBR_DRAIN_GAIN = BBR_ONE * 1000 / 2885,
	BBR_CWND_GAIN = 2 * BBR_ONE, /* delayed and stretched ACKs must not stop the sending */
	BBR_PACING_PERCENT = 99,     /* a queue that was built goes away */
	BBR_CYCLE_PHASES = 8,
	BBR_FULL_BW_ROUNDS = 3,
	BBR_MIN_CWND_PACKETS = 4, /* two pairs: one under way while the other's ACK is delayed */
	BBR_MIN_RTT_WINDOW_US = 10000000,
	BBR_PROBE_RTT_US = 200000,
	BBR_NOMINAL_RTT_US = 1000, /* before the first sample */
	BBR_MIN_TSO_RATE_BPS = 1200000,
	BBR_MAX_TSO_BYTES = 65536 - 1 - 320, /* less the headers the kernel reserves */
	BBR_MAX_TSO_SEGS = 127,
	BBR_EXTRA_ACKED_ROUNDS = 5, /* each of the two maxima of aggregation is kept this long, twice */
	BBR_EXTRA_ACKED_US = 100000,
	BBR_EPOCH_PACKETS = 1 << 20,
};

struct bbr {
	__u64 min_rtt_at_us;
	__u64 probe_rtt_done_us; /* 0: the window is not drained yet */
	__u64 phase_us;		 /* start of the phase */
	__u64 epoch_us;		 /* start of the epoch in which aggregation is measured */
	__u32 bw[BBR_BW_ROUNDS]; /* maximum of each round trip, first that of the last one with a sample that counts; packets/us */
	__u32 min_rtt_us;	 /* ~0: not known yet */
	__u32 next_round_delivered;
	__u32 prior_cwnd;
	__u32 full_bw;
	__u32 pacing_gain;
	__u32 cwnd_gain;
	__u32 extra_acked;	/* most packets beyond bw * time, in these round trips */
	__u32 extra_acked_past; /* and in those before */
	__u32 epoch_acked;
	__u32 limited_from; /* packets sent between these values of delivered were held back by PROBE_RTT */
	__u32 limited_to;
	__u8 limited; /* these are set */
	__u8 mode;
	__u8 prior_state; /* of the previous ACK */
	__u8 conservation;
	__u8 round_start;
	__u8 idle_restart;
	__u8 probe_rtt_round_done;
	__u8 full_bw_reached;
	__u8 full_bw_rounds;
	__u8 phase;
	__u8 rtt_seen;
	__u8 extra_acked_rounds;
	__u8 bw_age; /* round trips since bw[0]'s */
};

_Static_assert(sizeof(struct bbr) <= PLAIT_PRIVATE_WORDS * 8, "private state");

#include "bbr_model.h"

static __always_inline void bbr_init_pacing(struct sock *sk, struct bbr *b)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u32 rtt_us = BBR_NOMINAL_RTT_US;

	if (tp->srtt_us) {
		rtt_us = max(srtt_us(tp), 1u);
		b->rtt_seen = 1;
	}
	sk->sk_pacing_rate = bbr_rate_Bps(sk, (__u32)((__u64)tp->snd_cwnd * BBR_BW_UNIT / rtt_us), BBR_HIGH_GAIN);
}

static __always_inline void bbr_set_pacing(struct sock *sk, struct bbr *b, __u32 gain)
{
	__u64 rate_Bps = bbr_rate_Bps(sk, bbr_bw(b), gain);

	if (!b->rtt_seen && tcp_sk(sk)->srtt_us)
		bbr_init_pacing(sk, b);
	if (b->full_bw_reached || rate_Bps > sk->sk_pacing_rate)
		sk->sk_pacing_rate = rate_Bps;
}

/*
 * A connection that is under way at three quarters or more of what trains say the path takes needs no STARTUP, which would fill
 * the queue to find out what is known. Trains say that if they were sent at once or wait in a queue; others tell what was sent.
 */
static __always_inline void bbr_init_running(struct sock *sk, struct plait_sock *s, struct bbr *b)
{
	__u64 rate_Bps = max(s->rate_Bps, s->rate_round_Bps);

	if (s->train_sparse && !burst_queue_stands(s))
		return;
	if (!s->dispersion_Bps || rate_Bps < s->dispersion_Bps - (s->dispersion_Bps >> 2))
		return;
	b->bw[0] = rate_Bps * BBR_BW_UNIT / max(tcp_sk(sk)->mss_cache, 1u) / USEC_PER_SEC;
	b->full_bw = b->bw[0];
	b->full_bw_reached = 1;
	bbr_enter_probe_bw(tcp_sk(sk), b);
	bbr_update_gains(b);
}

static __always_inline void bbr_init(struct sock *sk, struct plait_sock *s)
{
	struct bbr *b = (struct bbr *)s->private;
	const struct tcp_sock *tp = tcp_sk(sk);

	b->next_round_delivered = tp->delivered;
	b->min_rtt_us = tp->rtt_min.s[0].v;
	b->min_rtt_at_us = tp->tcp_mstamp;
	b->epoch_us = tp->tcp_mstamp;
	b->mode = BBR_STARTUP;
	bbr_init_pacing(sk, b);
	set_pacing(sk, s, true);
	bbr_init_running(sk, s, b);
}

static __always_inline __u32 bbr_min_tso_segs(struct sock *sk, struct plait_sock *s)
{
	return bbr_min_segs(sk);
}

/* Before the window is cut: the last one that was good. */
static __always_inline void bbr_save_cwnd(const struct tcp_sock *tp, struct bbr *b)
{
	if (b->prior_state < TCP_CA_Recovery && b->mode != BBR_PROBE_RTT)
		b->prior_cwnd = tp->snd_cwnd;
	else
		b->prior_cwnd = max(b->prior_cwnd, tp->snd_cwnd);
}

static __always_inline __u32 bbr_ssthresh(const struct tcp_sock *tp, struct plait_sock *s)
{
	bbr_save_cwnd(tp, (struct bbr *)s->private);
	return tp->snd_ssthresh;
}

static __always_inline __u32 bbr_undo_cwnd(const struct tcp_sock *tp, struct plait_sock *s)
{
	struct bbr *b = (struct bbr *)s->private;

	b->full_bw = 0; /* the loss that was none may have cut STARTUP short */
	b->full_bw_rounds = 0;
	return tp->snd_cwnd;
}

static __always_inline void bbr_set_state(struct sock *sk, struct plait_sock *s, __u8 state)
{
	struct bbr *b = (struct bbr *)s->private;

	if (state != TCP_CA_Loss)
		return;
	b->prior_state = TCP_CA_Loss;
	b->full_bw = 0;
	b->round_start = 1; /* a timeout ends the round trip */
}

static __noinline int bbr_leave_probe_rtt(struct tcp_sock *tp, struct bbr *b)
{
	if (!b->probe_rtt_done_us || tp->tcp_mstamp <= b->probe_rtt_done_us)
		return 0;
	b->min_rtt_at_us = tp->tcp_mstamp;
	tp->snd_cwnd = max(tp->snd_cwnd, b->prior_cwnd);
	if (b->full_bw_reached)
		bbr_enter_probe_bw(tp, b);
	else
		b->mode = BBR_STARTUP;
	return 0;
}

/* Another takes over. The few packets of PROBE_RTT are no window for it; what a recovery or a timeout has left is. */
static __always_inline void bbr_leave(struct sock *sk, const struct plait_sock *s)
{
	const struct bbr *b = (const struct bbr *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);

	if (b->mode == BBR_PROBE_RTT && ca_state(sk) <= TCP_CA_Disorder)
		tp->snd_cwnd = max(tp->snd_cwnd, b->prior_cwnd);
}

static __always_inline void bbr_event(struct sock *sk, struct plait_sock *s, enum tcp_ca_event event)
{
	struct bbr *b = (struct bbr *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);

	if (event != CA_EVENT_TX_START || !tp->app_limited)
		return;
	b->idle_restart = 1;
	b->epoch_us = tp->tcp_mstamp;
	b->epoch_acked = 0;
	if (b->mode == BBR_PROBE_BW)
		bbr_set_pacing(sk, b, BBR_ONE); /* the application has no more to send: no reason to probe */
	else if (b->mode == BBR_PROBE_RTT)
		bbr_leave_probe_rtt(tp, b);
}

static __noinline int bbr_update_min_rtt(struct tcp_sock *tp, const struct plait_sock *s, struct bbr *b, const struct rate_sample *rs)
{
	__u64 now_us = tp->tcp_mstamp;
	bool expired = now_us > b->min_rtt_at_us + BBR_MIN_RTT_WINDOW_US;
	long rtt_us = acked_rtt_us(s, rs);

	if (rtt_us >= 0 && (rtt_us < b->min_rtt_us || (expired && !rs->is_ack_delayed))) {
		b->min_rtt_us = rtt_us;
		b->min_rtt_at_us = now_us;
	}
	if (expired && !b->idle_restart && b->mode != BBR_PROBE_RTT) {
		bbr_save_cwnd(tp, b);
		b->mode = BBR_PROBE_RTT;
		b->probe_rtt_done_us = 0;
		b->limited_from = tp->delivered;
		b->limited = 1;
	}
	if (b->mode == BBR_PROBE_RTT) {
		b->limited_to = tp->delivered + packets_in_flight(tp);
		if (b->probe_rtt_done_us) {
			b->probe_rtt_round_done |= b->round_start;
			if (b->probe_rtt_round_done)
				bbr_leave_probe_rtt(tp, b);
		} else if (packets_in_flight(tp) <= BBR_MIN_CWND_PACKETS) {
			b->probe_rtt_done_us = now_us + BBR_PROBE_RTT_US;
			b->probe_rtt_round_done = 0;
			b->next_round_delivered = tp->delivered;
		}
	}
	if (rs->delivered > 0)
		b->idle_restart = 0;
	return 0;
}

/* Losses come off the window, a recovery starts with what is in flight and ends with the window before. True: keep to it. */
static __always_inline bool bbr_recovers(struct sock *sk, struct bbr *b, const struct rate_sample *rs, __u32 *cwnd)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u32 carried = packets_in_flight(tp) + rs->acked_sacked;
	__u8 state = ca_state(sk), prior_state = b->prior_state;
	__s32 losses = rs->losses;

	if (losses > 0)
		*cwnd = *cwnd > (__u32)losses ? *cwnd - losses : 1;
	if (state == TCP_CA_Recovery && prior_state != TCP_CA_Recovery) {
		b->conservation = 1;
		b->next_round_delivered = tp->delivered;
		*cwnd = carried;
	} else if (prior_state >= TCP_CA_Recovery && state < TCP_CA_Recovery) {
		b->conservation = 0;
		*cwnd = max(*cwnd, b->prior_cwnd);
	}
	b->prior_state = state;
	if (b->conservation)
		*cwnd = max(*cwnd, carried);
	return b->conservation;
}

static __noinline int bbr_set_cwnd(struct sock *sk, struct bbr *b, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk_mut(sk);
	__u32 cwnd = tp->snd_cwnd, acked = rs->acked_sacked, target;

	if (acked && !bbr_recovers(sk, b, rs, &cwnd)) {
		target = bbr_with_bundles(sk, b, bbr_bdp(b, b->cwnd_gain) + bbr_aggregation(b));
		if (b->full_bw_reached)
			cwnd = min(cwnd + acked, target);
		else if (cwnd < target || tp->delivered < TCP_INIT_CWND)
			cwnd += acked;
		cwnd = max(cwnd, (__u32)BBR_MIN_CWND_PACKETS);
	}
	cwnd = min(cwnd, tp->snd_cwnd_clamp);
	if (b->mode == BBR_PROBE_RTT)
		cwnd = min(cwnd, (__u32)BBR_MIN_CWND_PACKETS);
	tp->snd_cwnd = cwnd;
	return 0;
}

static __always_inline void bbr_main(struct sock *sk, struct plait_sock *s, const struct rate_sample *rs)
{
	struct bbr *b = (struct bbr *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);

	bbr_update_bw(tp, b, rs);
	bbr_update_aggregation(tp, b, rs);
	bbr_update_phase(sk, b, rs);
	bbr_check_full_bw(b, rs);
	bbr_check_drain(sk, b);
	bbr_update_min_rtt(tp, s, b, rs);
	bbr_update_gains(b);
	bbr_set_pacing(sk, b, b->pacing_gain);
	bbr_set_cwnd(sk, b, rs);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CUBIC (RFC 9438, before RFC 8312): growth by the clock, independent of the round trip time. t seconds after a loss,
 *
 *	W(t) = C (t - K)^3 + Wmax,   K = cbrt((Wmax - w) / C),   C = 0.4 packets/s^3
 *
 * is where the window should be one round trip later: fast at first, flat around Wmax, the window of the loss, then away from
 * it. Never slower than Reno would be with the same losses: 3 (1 - beta) / (1 + beta) packets per round trip, beta = 0.7. A loss
 * leaves beta * w; one below Wmax lowers Wmax to (1 + beta) / 2 * w, so that a shrinking share makes room for others sooner
 * (fast convergence). Time in which nothing is sent does not count. Wmax is kept while a connection uses another algorithm, as
 * between two transfers with bursts: growth from nothing known, 5 % per round trip, would overflow the queue again in each.
 *
 * Slow start ends at the first sign of a queue (HyStart), from 16 packets on, either of
 *
 *	a train of ACKs no more than 2 ms apart that is longer than RTTmin / 2 (RTTmin if paced)
 *	the least of 8 round trips above RTTmin + RTTmin / 8 (this part within 4 to 16 ms)
 *
 * S. Ha, I. Rhee, L. Xu, CUBIC: A New TCP-Friendly High-Speed TCP Variant, ACM OSR 42(5), 2008; S. Ha, I. Rhee, Taming the
 * Elephants: New TCP Slow Start, Computer Networks 55, 2011.
 */
#ifndef PLAIT_CC_CUBIC_H
#define PLAIT_CC_CUBIC_H

#include "../window.h"

enum {
	CUBIC_BETA_1024THS = 717,
	/* C: 41/1024 per 100 ms of round trip, the paper's scale; 410/1024 packets/s^3 */
	CUBIC_C_1024THS = 410,
	CUBIC_MAX_CNT_WINDOWS = 100, /* at Wmax: a packet in 100 round trips */
	CUBIC_FIRST_CNT = 20,	     /* before any loss at least 5 % per round trip */
	/* (1 + beta) / (3 (1 - beta)) = 1741 / 921 windows per packet of Reno's, in eighths: 15 */
	CUBIC_RENO_WINDOWS_8THS = 8 * (1024 + CUBIC_BETA_1024THS) / 3 / (1024 - CUBIC_BETA_1024THS),
	CUBIC_UPDATE_US = 31250,	/* W(t) is computed anew after 1/32 s, */
	CUBIC_UPDATE_MIN_US = 4000,	/* or when w has changed, but not within a jiffy of Debian's kernels */
	CUBIC_AFTER_LOSS_US = 1000000,	/* round trips this soon after a loss are not taken for the minimum */
	CUBIC_MAX_TIME_1024THS = 300 * 1024, /* C * t^3 fits 64 bits, and is 10^7 packets */
	HYSTART_LOW_WINDOW = 16,
	HYSTART_SAMPLES = 8,
	HYSTART_ACK_DELTA_US = 2000,
	HYSTART_DELAY_MIN_US = 4000,
	HYSTART_DELAY_MAX_US = 16000,
	HYSTART_MAX_ACK_DELAY_US = 1000,
};

struct cubic {
	__u64 epoch_us; /* 0: no growth since the last loss */
	__u64 updated_us;
	__u64 round_us; /* HyStart's round */
	__u64 last_ack_us;
	__u64 anchor_us; /* this time and anchor_jiffies are the same: they give the length of a jiffy */
	__u64 anchor_jiffies; /* 32 bits of them go round in 49 days */
	__u32 cnt; /* acknowledged packets per packet more */
	__u32 wmax_packets;
	__u32 last_cwnd;
	__u32 origin_packets; /* where the curve is flat */
	__u32 k_1024ths;      /* s, since the epoch */
	__u32 min_rtt_us;     /* 0: not known yet */
	__u32 acked;	      /* not yet turned into Reno's growth */
	__u32 reno_cwnd;
	__u32 round_end; /* sequence number whose ACK ends HyStart's round */
	__u32 round_rtt_us;
	__u16 samples;
	__u8 found; /* the end of slow start */
	__u8 pad;
};

_Static_assert(sizeof(struct cubic) <= PLAIT_PRIVATE_WORDS * 8, "private state");

/* Everything a timeout makes worthless. */
static __always_inline void cubic_reset(struct cubic *c)
{
	c->epoch_us = c->updated_us = 0;
	c->cnt = c->wmax_packets = c->last_cwnd = 0;
	c->origin_packets = c->k_1024ths = c->min_rtt_us = 0;
	c->acked = c->reno_cwnd = 0;
	c->found = 0;
}

static __always_inline void hystart_round(const struct tcp_sock *tp, struct cubic *c)
{
	c->round_us = c->last_ack_us = tp->tcp_mstamp;
	c->round_end = tp->snd_nxt;
	c->round_rtt_us = ~0u;
	c->samples = 0;
}

static __always_inline void cubic_init(struct sock *sk, struct plait_sock *s)
{
	struct cubic *c = (struct cubic *)s->private;
	const struct tcp_sock *tp = tcp_sk(sk);

	cubic_reset(c);
	c->wmax_packets = s->wmax_packets;
	hystart_round(tp, c);
	c->anchor_us = clock_us();
	c->anchor_jiffies = bpf_jiffies64();
}

/*
 * Newton's method for x^3 = a, from the power of two above the root: the error is at most the root itself, and becomes
 * 5/12, 0.11, 0.011, 0.0001, ... of it. The result is the root rounded down, or one more.
 */
static __noinline __u32 cubic_root(__u64 a)
{
	__u32 bits = 0;
	__u64 x;

	for (int i = 0; i < 21 && a >> (3 * bits & 63); i++)
		bits++;
	x = 1ULL << (bits & 31);
	for (int i = 0; i < 6; i++)
		x = (2 * x + a / (x * x)) / 3;
	return x;
}

static __always_inline void cubic_begin_epoch(struct cubic *c, __u32 cwnd, __u32 acked, __u64 now_us)
{
	c->epoch_us = now_us;
	c->acked = acked;
	c->reno_cwnd = cwnd;
	c->k_1024ths = 0;
	c->origin_packets = cwnd;
	if (c->wmax_packets > cwnd) {
		/* K^3 in (s/1024)^3: 2^30 * (Wmax - w) / (410 / 2^10) */
		c->k_1024ths = cubic_root((1ULL << 40) / CUBIC_C_1024THS * (c->wmax_packets - cwnd));
		c->origin_packets = c->wmax_packets;
	}
}

/* The counter that leads from cwnd to W(t + RTT). */
static __always_inline __u32 cubic_curve(const struct cubic *c, __u32 cwnd, __u64 now_us)
{
	/* us to s/1024: * 1024 / 10^6 = * 16 / 15625 */
	__u64 t = (now_us - c->epoch_us + c->min_rtt_us) * 16 / 15625, k = c->k_1024ths;
	__u64 offset = min(t < k ? k - t : t - k, (__u64)CUBIC_MAX_TIME_1024THS);
	__u32 delta = CUBIC_C_1024THS * offset * offset * offset >> 40;
	__u32 target = t < k ? c->origin_packets - delta : c->origin_packets + delta;
	__u32 cnt = CUBIC_MAX_CNT_WINDOWS * cwnd;

	if ((__s32)(target - cwnd) > 0)
		cnt = cwnd / (target - cwnd);
	if (!c->wmax_packets)
		cnt = min(cnt, (__u32)CUBIC_FIRST_CNT);
	return cnt;
}

static __always_inline void cubic_reno_friendly(struct cubic *c, __u32 cwnd)
{
	__u32 per_packet = max(cwnd * CUBIC_RENO_WINDOWS_8THS >> 3, 1u);

	if (c->acked > per_packet) {
		__u32 packets = (c->acked - 1) / per_packet;

		c->acked -= packets * per_packet;
		c->reno_cwnd += packets;
	}
	if (c->reno_cwnd > cwnd)
		c->cnt = min(c->cnt, cwnd / (c->reno_cwnd - cwnd));
}

static __noinline int cubic_update(struct cubic *c, __u32 cwnd, __u32 acked, __u64 now_us)
{
	__u64 since_us = now_us - c->updated_us;

	c->acked += acked;
	if (c->last_cwnd == cwnd && since_us <= CUBIC_UPDATE_US)
		return 0;
	if (!c->epoch_us || since_us >= CUBIC_UPDATE_MIN_US) {
		c->last_cwnd = cwnd;
		c->updated_us = now_us;
		if (!c->epoch_us)
			cubic_begin_epoch(c, cwnd, acked, now_us);
		c->cnt = cubic_curve(c, cwnd, now_us);
	}
	cubic_reno_friendly(c, cwnd);
	c->cnt = max(c->cnt, 2u); /* at most half a window more per round trip */
	return 0;
}

static __always_inline void cubic_cong_avoid(struct tcp_sock *tp, struct plait_sock *s, __u32 acked)
{
	struct cubic *c = (struct cubic *)s->private;

	if (!cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked);
		if (!acked)
			return;
	}
	cubic_update(c, tp->snd_cwnd, acked, tp->tcp_mstamp);
	additive_increase(tp, c->cnt, acked);
}

static __always_inline __u32 cubic_ssthresh(const struct tcp_sock *tp, struct plait_sock *s)
{
	struct cubic *c = (struct cubic *)s->private;
	__u32 cwnd = tp->snd_cwnd;

	c->epoch_us = 0;
	c->wmax_packets = cwnd < c->wmax_packets ? (__u64)cwnd * (1024 + CUBIC_BETA_1024THS) / 2048 : cwnd;
	s->wmax_packets = c->wmax_packets;
	return max((__u32)((__u64)cwnd * CUBIC_BETA_1024THS >> 10), 2u);
}

static __always_inline void cubic_set_state(struct sock *sk, struct plait_sock *s, __u8 state)
{
	struct cubic *c = (struct cubic *)s->private;

	if (state != TCP_CA_Loss)
		return;
	cubic_reset(c);
	s->wmax_packets = 0;
	hystart_round(tcp_sk(sk), c);
}

/*
 * Sending starts with nothing in flight: the epoch moves by the time since the last packet. That time is known in jiffies, whose
 * length the program does not know: it is taken from the jiffies since the anchor.
 */
static __always_inline void cubic_event(struct sock *sk, struct plait_sock *s, enum tcp_ca_event event)
{
	struct cubic *c = (struct cubic *)s->private;
	const struct tcp_sock *tp = tcp_sk(sk);
	__u64 now = bpf_jiffies64(), elapsed = now - c->anchor_jiffies, now_us = tp->tcp_mstamp, shifted_us, jiffy_1024ths_us;
	__u32 idle = (__u32)now - tp->lsndtime;

	if (event != CA_EVENT_TX_START || !c->epoch_us || (__s32)idle <= 0 || !elapsed)
		return;
	jiffy_1024ths_us = ((now_us - c->anchor_us) << 10) / elapsed; /* first: the product of both times outgrows 64 bits in days */
	shifted_us = c->epoch_us + (jiffy_1024ths_us * idle >> 10);
	c->epoch_us = min(shifted_us, now_us);
}

/* An ACK may come this much late because packets leave, and are received, in bundles: four of the largest. */
static __always_inline __u32 hystart_ack_delay_us(struct sock *sk)
{
	__u64 rate_Bps = sk->sk_pacing_rate;

	if (!rate_Bps)
		return 0;
	return min(sk->sk_gso_max_size * 4 * USEC_PER_SEC / rate_Bps, (__u64)HYSTART_MAX_ACK_DELAY_US);
}

static __noinline int hystart_update(struct sock *sk, struct cubic *c, __u32 rtt_us, __u32 lead_us)
{
	struct tcp_sock *tp = tcp_sk_mut(sk);
	__u64 now_us = tp->tcp_mstamp;
	__u32 limit_us;

	if ((__s32)(tp->snd_una - c->round_end) > 0)
		hystart_round(tp, c);
	if (tp->snd_cwnd < HYSTART_LOW_WINDOW)
		return 0;
	if (now_us - c->last_ack_us <= HYSTART_ACK_DELTA_US) {
		c->last_ack_us = now_us;
		/* a train fills the path that the ACKs go round, with copies a shorter one */
		limit_us = c->min_rtt_us - min(c->min_rtt_us, lead_us) + hystart_ack_delay_us(sk);
		if (sk->sk_pacing_status == SK_PACING_NONE)
			limit_us >>= 1;
		if (now_us - c->round_us > limit_us)
			c->found = 1;
	}
	c->round_rtt_us = min(c->round_rtt_us, rtt_us);
	limit_us = min(max(c->min_rtt_us >> 3, (__u32)HYSTART_DELAY_MIN_US), (__u32)HYSTART_DELAY_MAX_US);
	if (c->samples < HYSTART_SAMPLES)
		c->samples++;
	else if (c->round_rtt_us > c->min_rtt_us + limit_us)
		c->found = 1;
	if (c->found)
		tp->snd_ssthresh = tp->snd_cwnd;
	return 0;
}

static __always_inline void cubic_pkts_acked(struct sock *sk, struct plait_sock *s, const struct ack_sample *sample)
{
	struct cubic *c = (struct cubic *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);
	__s32 sampled_us = sampled_rtt_us(s, sample);
	__u32 rtt_us;

	if (sampled_us < 0)
		return;
	if (c->epoch_us && tp->tcp_mstamp - c->epoch_us < CUBIC_AFTER_LOSS_US)
		return;
	rtt_us = max((__u32)sampled_us, 1u);
	if (!c->min_rtt_us || rtt_us < c->min_rtt_us)
		c->min_rtt_us = rtt_us;
	if (!c->found && in_slow_start(tp))
		hystart_update(sk, c, rtt_us, s->lead_us);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * H-TCP: the longer the last loss is ago, the faster the window grows. With D seconds since then,
 *
 *	alpha(D) = 1 for D <= 1 s, else 1 + 10 (D - 1) + ((D - 1) / 2)^2
 *	alpha    = 2 (1 - beta) * alpha(D) * RTTmin / 100 ms     (the RTT's factor between 1/10 and 2)
 *	window   : alpha packets more per round trip; after a loss beta * w
 *	beta     = RTTmin / RTTmax, between 0.5 and 0.8: just what empties the queue; 0.5 if the throughput at this loss differs by
 *		   more than a fifth from that at the loss before, and at the loss after such a one
 *
 * The factor 2 (1 - beta) keeps it fair to Reno, that of the RTT makes growth independent of it. alpha and beta are kept in
 * 1/128, times in us where the kernel has jiffies. RTTmax rises by 20 ms at most at a time, and a twentieth of its distance from
 * RTTmin is forgotten at every loss. A loss that turns out to have been none puts D back, and not
 * RTTmax and the throughput: the kernel's module saves these when beta has been computed, and so puts back what is there.
 *
 * D. Leith, R. Shorten, H-TCP: TCP for High-Speed and Long-Distance Networks, PFLDnet 2004; draft-leith-tcp-htcp-06.
 */
#ifndef PLAIT_CC_HTCP_H
#define PLAIT_CC_HTCP_H

#include "reno.h"

enum {
	HTCP_ONE = 128, /* 1.0 of alpha and beta */
	HTCP_BETA_MIN = 64,
	HTCP_BETA_MAX = 102,		 /* 0.8 */
	HTCP_LOW_SPEED_US = 1000000,	 /* as long after a loss it is Reno */
	HTCP_REFERENCE_RTT_US = 100000,
	HTCP_RTT_MAX_STEP_US = 20000,
	HTCP_ADAPTIVE_MIN_RTT_US = 10000, /* below, RTTmin / RTTmax is noise */
	HTCP_BACKOFF_RTTS = 3,		 /* throughput is taken to be that of after the loss for this long */
};

struct htcp {
	__u64 loss_us;
	__u64 undo_loss_us; /* 0: nothing to undo */
	__u64 interval_us;  /* start of the throughput's interval */
	__u32 alpha_128ths;
	__u32 beta_128ths;
	__u32 min_rtt_us; /* 0: not known yet */
	__u32 max_rtt_us;
	__u32 packets; /* acknowledged in the interval */
	__u32 pkts_acked;
	__u32 adaptive; /* beta may follow the round trips */
	__u64 rate_pps; /* averaged over four intervals */
	__u64 max_rate_pps; /* since the last loss */
	__u64 last_max_rate_pps; /* at the loss before */
};

_Static_assert(sizeof(struct htcp) <= PLAIT_PRIVATE_WORDS * 8, "private state");

static __always_inline void htcp_init(struct sock *sk, struct plait_sock *s)
{
	struct htcp *h = (struct htcp *)s->private;

	h->alpha_128ths = HTCP_ONE;
	h->beta_128ths = HTCP_BETA_MIN;
	h->pkts_acked = 1;
	h->loss_us = clock_us();
}

static __noinline int htcp_update_alpha(struct htcp *h, __u64 now_us)
{
	__u64 factor = 1, since_us = now_us - h->loss_us;

	if ((__s64)since_us > HTCP_LOW_SPEED_US) { /* less than nothing at the ACK with which it begins */
		__u64 ms = min((since_us - HTCP_LOW_SPEED_US) / 1000, 1ULL << 24); /* 4.6 h: the square stays small */

		factor = 1 + (10 * ms + (ms / 2) * (ms / 2) / 1000) / 1000;
	}
	if (h->min_rtt_us) {
		__u32 scale_8ths = 8 * HTCP_REFERENCE_RTT_US / h->min_rtt_us;

		scale_8ths = min(max(scale_8ths, 4u), 80u); /* 0.5 to 10 */
		factor = max(8 * factor / scale_8ths, 1ULL);
	}
	/* far more than any window: the counter times alpha must fit 64 bits */
	h->alpha_128ths = min(2 * factor * (HTCP_ONE - h->beta_128ths), 1ULL << 31);
	return 0;
}

static __always_inline void htcp_update_beta(struct htcp *h)
{
	__u64 rate = h->max_rate_pps, last = h->last_max_rate_pps;
	__u32 beta;

	h->last_max_rate_pps = rate;
	if (5 * rate < 4 * last || 5 * rate > 6 * last) {
		h->beta_128ths = HTCP_BETA_MIN;
		h->adaptive = 0;
		return;
	}
	if (!h->adaptive || h->min_rtt_us <= HTCP_ADAPTIVE_MIN_RTT_US || !h->max_rtt_us) {
		h->beta_128ths = HTCP_BETA_MIN;
		h->adaptive = 1;
		return;
	}
	beta = (__u64)h->min_rtt_us * HTCP_ONE / h->max_rtt_us;
	h->beta_128ths = min(max(beta, (__u32)HTCP_BETA_MIN), (__u32)HTCP_BETA_MAX);
}

static __always_inline __u32 htcp_ssthresh(const struct tcp_sock *tp, struct plait_sock *s)
{
	struct htcp *h = (struct htcp *)s->private;

	htcp_update_beta(h);
	htcp_update_alpha(h, tp->tcp_mstamp);
	if (h->min_rtt_us && h->max_rtt_us > h->min_rtt_us)
		h->max_rtt_us = h->min_rtt_us + (__u64)(h->max_rtt_us - h->min_rtt_us) * 95 / 100;
	return max((__u32)((__u64)tp->snd_cwnd * h->beta_128ths / HTCP_ONE), 2u);
}

static __always_inline __u32 htcp_undo_cwnd(const struct tcp_sock *tp, struct plait_sock *s)
{
	struct htcp *h = (struct htcp *)s->private;

	if (h->undo_loss_us) {
		h->loss_us = h->undo_loss_us;
		h->undo_loss_us = 0;
	}
	return reno_undo_cwnd(tp);
}

/* D starts at the loss, and again when it is repaired. */
static __always_inline void htcp_set_state(struct sock *sk, struct plait_sock *s, __u8 state)
{
	struct htcp *h = (struct htcp *)s->private;
	__u64 now_us = tcp_sk(sk)->tcp_mstamp;

	switch (state) {
	case TCP_CA_Open:
		if (h->undo_loss_us) {
			h->loss_us = now_us;
			h->undo_loss_us = 0;
		}
		break;
	case TCP_CA_CWR:
	case TCP_CA_Recovery:
	case TCP_CA_Loss:
		h->undo_loss_us = h->loss_us;
		h->loss_us = now_us;
		break;
	}
}

static __always_inline void htcp_measure_rtt(struct htcp *h, __u32 rtt_us, bool open)
{
	if (!h->min_rtt_us || rtt_us < h->min_rtt_us)
		h->min_rtt_us = rtt_us;
	if (!open)
		return;
	h->max_rtt_us = max(h->max_rtt_us, h->min_rtt_us);
	if (rtt_us > h->max_rtt_us && rtt_us <= h->max_rtt_us + HTCP_RTT_MAX_STEP_US)
		h->max_rtt_us = rtt_us;
}

/* Throughput over an interval of a round trip or more, in which about a window was acknowledged. */
static __noinline int htcp_measure_rate(struct htcp *h, __u32 cwnd, __u64 now_us)
{
	__u64 elapsed_us = now_us - h->interval_us, rate_pps;
	__u32 window = cwnd - max(h->alpha_128ths / HTCP_ONE, 1u);

	if (h->packets < window || !h->min_rtt_us || !elapsed_us || elapsed_us < h->min_rtt_us)
		return 0;
	rate_pps = h->packets * USEC_PER_SEC / elapsed_us;
	if ((__s64)(now_us - h->loss_us) < (HTCP_BACKOFF_RTTS + 1) * (__s64)h->min_rtt_us) {
		h->rate_pps = rate_pps;
		h->max_rate_pps = rate_pps;
	} else {
		h->rate_pps = (3 * h->rate_pps + rate_pps) / 4;
		h->max_rate_pps = max(h->max_rate_pps, h->rate_pps);
	}
	h->packets = 0;
	h->interval_us = now_us;
	return 0;
}

static __always_inline void htcp_pkts_acked(struct sock *sk, struct plait_sock *s, const struct ack_sample *sample)
{
	struct htcp *h = (struct htcp *)s->private;
	const struct tcp_sock *tp = tcp_sk(sk);
	__u8 state = ca_state(sk);
	__s32 rtt_us = sampled_rtt_us(s, sample);

	if (state == TCP_CA_Open)
		h->pkts_acked = sample->pkts_acked;
	if (rtt_us > 0)
		htcp_measure_rtt(h, rtt_us, state == TCP_CA_Open);
	if (state != TCP_CA_Open && state != TCP_CA_Disorder) {
		h->packets = 0;
		h->interval_us = tp->tcp_mstamp;
		return;
	}
	h->packets += sample->pkts_acked;
	htcp_measure_rate(h, tp->snd_cwnd, tp->tcp_mstamp);
}

static __always_inline void htcp_cong_avoid(struct tcp_sock *tp, struct plait_sock *s, __u32 acked)
{
	struct htcp *h = (struct htcp *)s->private;
	__u32 cwnd = tp->snd_cwnd;

	if (!cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		slow_start(tp, acked);
		return;
	}
	if ((__u64)tp->snd_cwnd_cnt * h->alpha_128ths / HTCP_ONE >= cwnd) {
		tp->snd_cwnd = min(cwnd + 1, tp->snd_cwnd_clamp);
		tp->snd_cwnd_cnt = 0;
		htcp_update_alpha(h, tp->tcp_mstamp);
	} else {
		tp->snd_cwnd_cnt += h->pkts_acked;
	}
	h->pkts_acked = 1;
}

#endif

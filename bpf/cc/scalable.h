/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Scalable TCP: after every loss the window is back after the same number of round trips, however large it is.
 *
 *	ACK:  w <- w + 0.01	loss: w <- w - w/8
 *
 * so the recovery of the lost eighth takes ln(8/7) / ln(1.01), some 13 round trips; Reno's takes w/2. Below 100 packets one
 * packet per round trip is more than 1 %, and Reno's increase is used.
 *
 * T. Kelly, Scalable TCP: Improving Performance in Highspeed Wide Area Networks, ACM CCR 33(2), 2003. The factor 0.01 is the
 * paper's a, 1/8 its b.
 */
#ifndef PLAIT_CC_SCALABLE_H
#define PLAIT_CC_SCALABLE_H

#include "../window.h"

enum {
	SCALABLE_INCREASE_PACKETS = 100, /* acknowledged packets per packet more: 1/a */
	SCALABLE_DECREASE_SHIFT = 3,	 /* b = 2^-3 */
};

static __always_inline __u32 scalable_ssthresh(const struct tcp_sock *tp)
{
	__u32 cwnd = tp->snd_cwnd;

	return max(cwnd - (cwnd >> SCALABLE_DECREASE_SHIFT), 2u);
}

static __always_inline void scalable_cong_avoid(struct tcp_sock *tp, __u32 acked)
{
	if (!cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked);
		if (!acked)
			return;
	}
	additive_increase(tp, min(tp->snd_cwnd, (__u32)SCALABLE_INCREASE_PACKETS), acked);
}

#endif

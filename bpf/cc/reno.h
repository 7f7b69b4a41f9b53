/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reno (RFC 5681): one packet more per round trip, half the window after a loss. */
#ifndef PLAIT_CC_RENO_H
#define PLAIT_CC_RENO_H

#include "../window.h"

static __always_inline __u32 reno_ssthresh(const struct tcp_sock *tp)
{
	return max(tp->snd_cwnd >> 1, 2u);
}

static __always_inline __u32 reno_undo_cwnd(const struct tcp_sock *tp)
{
	return max(tp->snd_cwnd, tp->prior_cwnd);
}

static __always_inline void reno_cong_avoid(struct tcp_sock *tp, __u32 acked)
{
	if (!cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked);
		if (!acked)
			return;
	}
	additive_increase(tp, tp->snd_cwnd, acked);
}

#endif

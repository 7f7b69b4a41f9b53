/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * HighSpeed TCP (RFC 3649): Reno up to a window of 38 packets; above, the larger the window the larger the increase a(w), in
 * packets per round trip, and the smaller the share b(w) given up after a loss, such that a loss rate of 10^-7 still lets a
 * window of 83000 packets stand (10 Gbit/s over 100 ms):
 *
 *	b(w) = 0.5 - 0.4 * ln(w / 38) / ln(83000 / 38)
 *	a(w) = w^2 * p(w) * 2 * b(w) / (2 - b(w)),  p(w) = 0.078 / w^1.2
 *
 * a(w) takes whole values here, as in the table of the RFC's appendix B: up to highspeed_windows[k] packets it is k + 1, and
 * b is that window's, in 1/256, rounded down.
 *
 * The increase is a(w)/w for each ACK and not for each acknowledged packet, as in the kernel: delayed ACKs halve it. What a
 * loss takes is decided by the row of the last increase: a first loss in slow start takes half.
 */
#ifndef PLAIT_CC_HIGHSPEED_H
#define PLAIT_CC_HIGHSPEED_H

#include "../window.h"

enum { HIGHSPEED_ROWS = 72 };

static const __u32 highspeed_windows[HIGHSPEED_ROWS] = {
	38, 118, 221, 347, 495, 663, 851, 1058, 1284, 1529, 1793, 2076, 2378, 2699, 3039, 3399, 3778, 4177, 4596,
	5036, 5497, 5979, 6483, 7009, 7558, 8130, 8726, 9346, 9991, 10661, 11358, 12082, 12834, 13614, 14424, 15265,
	16137, 17042, 17981, 18955, 19965, 21013, 22101, 23230, 24402, 25618, 26881, 28193, 29557, 30975, 32450,
	33986, 35586, 37253, 38992, 40808, 42707, 44694, 46776, 48961, 51258, 53677, 56230, 58932, 61799, 64851,
	68113, 71617, 75401, 79517, 84035, 89053,
};

static const __u8 highspeed_decrease_256ths[HIGHSPEED_ROWS] = {
	128, 112, 104, 98, 93, 89, 86, 83, 81, 78, 76, 74, 72, 71, 69, 68, 66, 65, 64, 62, 61, 60, 59, 58, 57, 56,
	55, 54, 53, 52, 52, 51, 50, 49, 48, 48, 47, 46, 45, 45, 44, 43, 43, 42, 41, 41, 40, 39, 39, 38, 38, 37, 36,
	36, 35, 35, 34, 33, 33, 32, 32, 31, 30, 30, 29, 28, 28, 27, 26, 26, 25, 24,
};

struct highspeed {
	__u32 row;
	__u32 pad;
};

_Static_assert(sizeof(struct highspeed) <= PLAIT_PRIVATE_WORDS * 8, "private state");

/* The first row whose window is not less than cwnd, or the last row. */
static __noinline __u32 highspeed_row(__u32 cwnd)
{
	__u32 row = 0;

	/* bisection: 64 + 32 + ... + 1 rows can be stepped over */
	for (__u32 step = 64; step; step >>= 1) {
		__u32 last = row + step - 1; /* of the rows stepped over */

		if (last < HIGHSPEED_ROWS - 1 && highspeed_windows[last] < cwnd)
			row += step;
	}
	return row;
}

static __always_inline __u32 highspeed_ssthresh(const struct tcp_sock *tp, struct plait_sock *s)
{
	struct highspeed *h = (struct highspeed *)s->private;
	__u32 cwnd = tp->snd_cwnd, row = h->row;

	if (row >= HIGHSPEED_ROWS)
		row = HIGHSPEED_ROWS - 1;
	return max(cwnd - (__u32)(((__u64)cwnd * highspeed_decrease_256ths[row]) >> 8), 2u);
}

static __always_inline void highspeed_cong_avoid(struct tcp_sock *tp, struct plait_sock *s, __u32 acked)
{
	struct highspeed *h = (struct highspeed *)s->private;
	__u32 cwnd = tp->snd_cwnd, cnt;

	if (!cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		slow_start(tp, acked);
		return;
	}
	h->row = highspeed_row(cwnd);
	if (cwnd >= tp->snd_cwnd_clamp)
		return;
	cnt = tp->snd_cwnd_cnt + h->row + 1;
	if (cnt >= cwnd) {
		cnt -= cwnd;
		tp->snd_cwnd = cwnd + 1;
	}
	tp->snd_cwnd_cnt = cnt;
}

#endif

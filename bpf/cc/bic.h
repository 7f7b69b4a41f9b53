/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * BIC: growth as a search for the window at which the last loss came, Wmax.
 *
 *	below Wmax:  per round trip a quarter of the distance to it, at most 16 packets, in the end 1/5 packet
 *	above Wmax:  the same mirrored: first 1/5 packet, then a third of the distance from it, at most 16 packets
 *	loss:        w <- 0.8 w; Wmax <- w before, or 0.9 w if that is less than the last Wmax (fast convergence: a shrinking
 *		     share makes room for the others sooner)
 *
 * Up to 14 packets it is Reno. Receivers that acknowledge every other packet are compensated for: the increase is multiplied by
 * the packets per ACK, averaged over 16 ACKs, as in the kernel, although it counts packets and not ACKs by now.
 *
 * L. Xu, K. Harfoush, I. Rhee, Binary Increase Congestion Control (BIC) for Fast Long-Distance Networks, INFOCOM 2004.
 */
#ifndef PLAIT_CC_BIC_H
#define PLAIT_CC_BIC_H

#include "../window.h"

enum {
	BIC_BETA_1024THS = 819, /* 0.8 */
	BIC_LOW_WINDOW_PACKETS = 14,
	BIC_MAX_INCREMENT_PACKETS = 16, /* per round trip, the paper's Smax */
	BIC_SEARCH_PARTS = 4,		/* a step of the search goes this part of the way */
	BIC_SMOOTH_PART = 20,		/* next to Wmax a packet takes 20/4 round trips, the paper's Smin */
	BIC_SLOW_START_CNT = 20,	/* before any loss at least 5 % per round trip */
	BIC_RATIO_SHIFT = 4,		/* the packets per ACK are kept in sixteenths, and averaged over 16 */
	BIC_UPDATE_US = 31250,		/* the increase is computed anew after 1/32 s, or when the window has changed */
};

struct bic {
	__u64 updated_us;
	__u32 cnt; /* acknowledged packets per packet more */
	__u32 wmax_packets;
	__u32 last_cwnd;
	__u32 packets_per_ack_16ths;
};

_Static_assert(sizeof(struct bic) <= PLAIT_PRIVATE_WORDS * 8, "private state");

static __always_inline void bic_reset(struct bic *b)
{
	b->updated_us = 0;
	b->cnt = 0;
	b->wmax_packets = 0;
	b->last_cwnd = 0;
	b->packets_per_ack_16ths = 2 << BIC_RATIO_SHIFT; /* delayed ACKs, until known better */
}

static __always_inline void bic_init(struct sock *sk, struct plait_sock *s)
{
	bic_reset((struct bic *)s->private);
}

/* How many packets must be acknowledged at this window for it to grow by one. */
static __always_inline __u32 bic_search(__u32 cwnd, __u32 wmax)
{
	__u32 distance;

	if (cwnd < wmax) {
		distance = (wmax - cwnd) / BIC_SEARCH_PARTS;
		if (distance > BIC_MAX_INCREMENT_PACKETS)
			return cwnd / BIC_MAX_INCREMENT_PACKETS;
		if (distance > 1)
			return cwnd / distance;
		return cwnd * BIC_SMOOTH_PART / BIC_SEARCH_PARTS;
	}
	distance = cwnd - wmax;
	if (distance < BIC_SEARCH_PARTS)
		return cwnd * BIC_SMOOTH_PART / BIC_SEARCH_PARTS;
	if (distance < BIC_MAX_INCREMENT_PACKETS * (BIC_SEARCH_PARTS - 1))
		return cwnd * (BIC_SEARCH_PARTS - 1) / distance;
	return cwnd / BIC_MAX_INCREMENT_PACKETS;
}

static __noinline int bic_update(struct bic *b, __u32 cwnd, __u64 now_us)
{
	__u32 cnt;

	if (b->last_cwnd == cwnd && now_us - b->updated_us <= BIC_UPDATE_US)
		return 0;
	b->last_cwnd = cwnd;
	b->updated_us = now_us;
	if (cwnd <= BIC_LOW_WINDOW_PACKETS) {
		b->cnt = cwnd;
		return 0;
	}
	cnt = bic_search(cwnd, b->wmax_packets);
	if (!b->wmax_packets)
		cnt = min(cnt, (__u32)BIC_SLOW_START_CNT);
	cnt = (cnt << BIC_RATIO_SHIFT) / max(b->packets_per_ack_16ths, 1u);
	b->cnt = max(cnt, 1u);
	return 0;
}

static __always_inline void bic_cong_avoid(struct tcp_sock *tp, struct plait_sock *s, __u32 acked)
{
	struct bic *b = (struct bic *)s->private;

	if (!cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked);
		if (!acked)
			return;
	}
	bic_update(b, tp->snd_cwnd, tp->tcp_mstamp);
	additive_increase(tp, b->cnt, acked);
}

static __always_inline __u32 bic_ssthresh(const struct tcp_sock *tp, struct plait_sock *s)
{
	struct bic *b = (struct bic *)s->private;
	__u32 cwnd = tp->snd_cwnd;

	if (cwnd < b->wmax_packets)
		b->wmax_packets = (__u64)cwnd * (1024 + BIC_BETA_1024THS) / 2048;
	else
		b->wmax_packets = cwnd;
	if (cwnd <= BIC_LOW_WINDOW_PACKETS)
		return max(cwnd >> 1, 2u);
	return max((__u32)((__u64)cwnd * BIC_BETA_1024THS >> 10), 2u);
}

/* After a timeout nothing known of the path is trusted. */
static __always_inline void bic_set_state(struct sock *sk, struct plait_sock *s, __u8 state)
{
	if (state == TCP_CA_Loss)
		bic_reset((struct bic *)s->private);
}

static __always_inline void bic_pkts_acked(struct sock *sk, struct plait_sock *s, const struct ack_sample *sample)
{
	struct bic *b = (struct bic *)s->private;

	if (ca_state(sk) == TCP_CA_Open)
		b->packets_per_ack_16ths += sample->pkts_acked - (b->packets_per_ack_16ths >> BIC_RATIO_SHIFT);
}

#endif

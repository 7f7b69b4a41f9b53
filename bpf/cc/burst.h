/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * burst: for traffic that comes in bursts, with idle times between them (screens, requests, keystrokes, frames).
 *
 * Window growth answers the question how much a long transfer may send. A burst is over before that answer comes, so this
 * algorithm asks another: how fast does the path take a burst? It sends what it would send at once anyway (the first ten
 * packets, RFC 6928) as one train, reads the path's capacity from the spacing of the train's ACKs, and paces all else at that
 * rate, with a window that never has to grow:
 *
 *	train      = 10 packets
 *	capacity  <- the lesser of the last two trains' dispersions, if more than before;
 *		     5/4 of the rate at which the burst arrives while a queue stands, if less, and just that rate after a loss
 *	window     = 5/4 * capacity * minimum RTT + train + 2
 *
 * The second lines make it robust: ACKs compressed on the way back would have to lie twice, and a rate that is too high
 * builds a queue, which shows. A loss says nothing as long as no queue stands: the window is kept through recovery and after a
 * timeout, and what was lost is paced like the rest. As long as nothing is known, it is slow start.
 *
 * Packet trains: Dovrolis, Ramanathan and Moore, Packet-Dispersion Techniques and a Capacity-Estimation Methodology,
 * IEEE/ACM ToN 12(6), 2004.
 */
#ifndef PLAIT_CC_BURST_H
#define PLAIT_CC_BURST_H

#include "../measure.h"
#include "reno.h"

enum {
	BURST_TRAIN_PACKETS = 10,
	/* A queue stands when the round trip exceeds its minimum by a sixteenth, and by 2 ms: less is timing noise of hosts. */
	BURST_QUEUE_SHIFT = 4,
	BURST_QUEUE_MIN_US = 2000,
	/* Packets after which the rate of arrival is that of the path and not of one clump (a frame of WiMAX, a slot of LTE). */
	BURST_ARRIVAL_PACKETS = 16,
};

struct burst {
	__u64 capacity_Bps; /* 0: not known yet */
	__u64 train_Bps;    /* dispersion of the last train */
	__u32 slow_start_cwnd;
	__u32 pad;
};

_Static_assert(sizeof(struct burst) <= PLAIT_PRIVATE_WORDS * 8, "private state");

static __always_inline bool burst_queue_stands(const struct plait_sock *s)
{
	__u32 floor_us = min_rtt_us(s);

	return s->last_rtt_us > floor_us + max(floor_us >> BURST_QUEUE_SHIFT, (__u32)BURST_QUEUE_MIN_US);
}

static __always_inline __u32 burst_window(const struct tcp_sock *tp, const struct plait_sock *s, const struct burst *b)
{
	__u64 bytes = b->capacity_Bps * min_rtt_us(s) / USEC_PER_SEC;
	__u64 packets = (bytes + (bytes >> 2)) / max(tp->mss_cache, 1u) + BURST_TRAIN_PACKETS + 2;

	return min(packets, (__u64)tp->snd_cwnd_clamp);
}

/* The rate at which the burst has arrived so far. */
static __always_inline __u64 burst_arrival_Bps(const struct tcp_sock *tp, const struct plait_sock *s)
{
	__u64 us = tp->tcp_mstamp - s->ack_us;

	return us ? (__u64)(tp->delivered - s->ack_delivered) * tp->mss_cache * USEC_PER_SEC / us : 0;
}

static __always_inline void burst_learn(const struct tcp_sock *tp, struct plait_sock *s, struct burst *b)
{
	__u64 seen = s->dispersion_Bps;

	if (s->trains == 1) {
		__u64 both = b->train_Bps ? min(seen, b->train_Bps) : seen;

		b->train_Bps = seen;
		b->capacity_Bps = max(b->capacity_Bps, both);
	}
	if (tp->delivered - s->ack_delivered >= BURST_ARRIVAL_PACKETS && burst_queue_stands(s)) {
		__u64 arrival = burst_arrival_Bps(tp, s);

		if (!s->burst_losses)
			arrival += arrival >> 2;
		b->capacity_Bps = min(b->capacity_Bps, arrival);
	}
}

static __always_inline void burst_init(struct sock *sk, struct plait_sock *s)
{
	set_pacing(sk, s, true);
}

static __always_inline __u32 burst_ssthresh(const struct tcp_sock *tp, struct plait_sock *s)
{
	return tp->snd_ssthresh;
}

/* The first packets after an idle time go as one train; later ones in pairs, as fast as a millisecond's timer can pace them. */
static __always_inline __u32 burst_min_tso_segs(const struct tcp_sock *tp)
{
	return tp->packets_out ? 2 : BURST_TRAIN_PACKETS;
}

/* Before the first packet after an idle time. */
static __always_inline void burst_begin(struct sock *sk, struct plait_sock *s)
{
	struct burst *b = (struct burst *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);

	if (b->capacity_Bps)
		tp->snd_cwnd = burst_window(tp, s, b);
}

static __always_inline void burst_main(struct sock *sk, struct plait_sock *s, const struct rate_sample *rs)
{
	struct burst *b = (struct burst *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);

	if (s->train_measured)
		burst_learn(tp, s, b);
	if (!b->capacity_Bps) {
		sk->sk_pacing_rate = sk->sk_max_pacing_rate;
		reno_cong_avoid(tp, rs->acked_sacked);
		return;
	}
	tp->snd_cwnd = burst_window(tp, s, b);
	sk->sk_pacing_rate = min(b->capacity_Bps, (__u64)sk->sk_max_pacing_rate);
}

#endif

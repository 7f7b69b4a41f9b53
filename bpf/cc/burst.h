/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * burst: for traffic that comes in bursts, with idle times between them (screens, requests, keystrokes, frames).
 *
 * Window growth answers the question how much a long transfer may send. A burst is over before that answer comes, so this
 * algorithm asks another: how fast does the path take a burst? It sends what it would send at once anyway (the first ten
 * packets, RFC 6928) as one train, reads the path's capacity from the spacing of the train's ACKs and from their timestamps, and paces all else at that
 * rate, with a window that never has to grow:
 *
 *	train      = 10 packets
 *	capacity  <- the lesser of the last two trains' dispersions, if more than before;
 *		     the best dispersion of a burst that lost packets while a queue stood, if less
 *	window     = 5/4 * capacity * minimum RTT + train + 2, and after the first 32 packets of a burst
 *		     not more than 5/4 of what arrives in a minimum RTT and 64 packets, while a queue stands
 *	rate       = capacity, and not more than 5/4 of this burst's best dispersion while a queue stands
 *
 * A rate that is too high does no harm where the queue has room for the burst, and on links whose rate changes by the second
 * (cellular) any rate measured is soon wrong: so only an overflow lowers what is remembered. What is harmed then, others, is bounded by the 64
 * packets. If a burst overflowed although its trains said that there was room (ACKs compressed on the way back), with more in
 * flight than has lately arrived without a loss, the rate falls to that of the whole burst's arrival, or by a quarter, and
 * grows by no more than 5/4 a burst for the next 8. A loss without a
 * queue says nothing: the window is kept through recovery and after a timeout, and what was lost is paced like the rest. As
 * long as nothing is known, it is Reno's slow start, and Reno where several packets are lost at once.
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
	/* Where a queue stands: what may be in it beyond the path's own, and from which packet of a burst on. */
	BURST_QUEUE_PACKETS = 64,
	BURST_BOUND_AFTER = 32,
	BURST_DISTRUST = 8,
	/* An overflow takes several packets in one round trip, or some in one burst after the other. */
	BURST_OVERFLOW_PACKETS = 3,
	BURST_OVERFLOW_BURSTS = 2,
};

/* Of a path, for all connections that go by it. */
struct path_ends {
	__u32 local[4];
	__u32 remote[4];
	__u32 netns;
};

/* A new connection may take its capacity from an earlier one, and it has. */
enum { BURST_MAY_LEND = 1, BURST_LENT = 2 };

struct burst {
	__u64 capacity_Bps; /* 0: not known yet */
	__u64 train_Bps;    /* dispersion of the first train of the last burst */
	__u64 best_Bps;	    /* the highest dispersion of this burst */
	__u8 distrust;	    /* bursts for which trains are not believed */
	__u8 overflowed;    /* in this burst */
	__u8 suspect;	    /* bursts in a row that lost packets while a queue stood */
	__u8 counted;	    /* this burst is among them */
	__u8 lent;	    /* BURST_MAY_LEND, BURST_LENT: until the first train of this connection (../path.h) */
	__u8 among;	    /* counted among those with a burst on the way to the same address (../path.h) */
	__u8 shared;	    /* there has been another one in this burst */
	__u8 overran;	    /* has lost so much that it may be one of a crowd: said once */
	__u32 sharing;	  /* how many those are */
	__u32 crowd;	  /* how many at once have overrun the queue of this path, of late; 0: none */
	struct path_ends ends; /* where it is counted: the kernel takes addresses from a socket before plait hears that it ends */
	__u32 own_at;	  /* packets delivered of this connection, */
	__u32 all_at;	  /* and of all of them, when the train at work began */
	__u64 tried_ns;	  /* since when it tries what was lent */
	__u64 seen_Bps;	  /* the last dispersion, with what came through for the others meanwhile */
};

_Static_assert(sizeof(struct burst) <= PLAIT_PRIVATE_WORDS * 8, "private state");

static __always_inline bool burst_queue_stands(const struct plait_sock *s)
{
	__u32 floor_us = min_rtt_us(s), own_us = floor_us + s->lead_us; /* with copies of ACKs, whose link adds its own noise */

	return s->last_rtt_us > floor_us + max(own_us >> BURST_QUEUE_SHIFT, (__u32)BURST_QUEUE_MIN_US);
}

/* The rate at which the burst has arrived so far. */
static __always_inline __u64 burst_arrival_Bps(const struct tcp_sock *tp, const struct plait_sock *s)
{
	__u64 us = tp->tcp_mstamp - s->ack_us;

	return us ? (__u64)(tp->delivered - s->ack_delivered) * tp->mss_cache * USEC_PER_SEC / us : 0;
}

static __always_inline __u32 burst_rtt_us(const struct plait_sock *s)
{
	return min_rtt_us(s) ? min_rtt_us(s) : s->handshake_us; /* before the first ACK of data */
}

/* 5/4 of what a rate puts on the way in a minimum RTT, and some packets. */
static __always_inline __u64 burst_packets(const struct tcp_sock *tp, const struct plait_sock *s, __u64 rate_Bps, __u32 more)
{
	__u64 bytes = rate_Bps * burst_rtt_us(s) / USEC_PER_SEC;

	return (bytes + (bytes >> 2)) / max(tp->mss_cache, 1u) + more;
}

/*
 * Of several on the way to the same address each has its share, where there is not enough for all, as so many losses in a round trip say, and before that is known. Two packets in a
 * round trip are TCP's least: hundreds would else wait for their turns longer than the others are there.
 */
static __always_inline __u64 burst_share(const struct tcp_sock *tp, const struct plait_sock *s, const struct burst *b, __u64 rate_Bps, __u32 losses)
{
	__u64 least_Bps = 2ULL * tp->mss_cache * USEC_PER_SEC / max(burst_rtt_us(s), 1U);

	if (b->sharing <= 1 || (!b->lent && s->round_losses < losses && !burst_queue_stands(s)))
		return rate_Bps;
	return min(rate_Bps, max(rate_Bps / b->sharing, least_Bps));
}

/* Of a crowd each begins with its part of the first ten packets, until those are out: the kernel paces no earlier. */
static __always_inline __u32 burst_start(const struct tcp_sock *tp, const struct burst *b, __u32 packets)
{
	if (!b->crowd || tp->data_segs_out >= BURST_TRAIN_PACKETS)
		return packets;
	return min(packets, max(BURST_TRAIN_PACKETS / b->crowd, 2U) - 1 + tp->delivered); /* one of which was of the handshake */
}

static __always_inline __u32 burst_window(const struct tcp_sock *tp, const struct plait_sock *s, const struct burst *b)
{
	__u64 packets = burst_packets(tp, s, burst_share(tp, s, b, b->capacity_Bps, BURST_OVERFLOW_PACKETS), BURST_TRAIN_PACKETS + 2);

	if (s->ack_us && tp->delivered - s->ack_delivered >= BURST_BOUND_AFTER && burst_queue_stands(s))
		packets = min(packets, burst_packets(tp, s, burst_arrival_Bps(tp, s), BURST_QUEUE_PACKETS));
	return burst_start(tp, b, min(packets, (__u64)tp->snd_cwnd_clamp));
}

static __always_inline void burst_learn_train(struct plait_sock *s, struct burst *b)
{
	__u64 seen = b->seen_Bps, both = b->train_Bps ? min(seen, b->train_Bps) : seen;

	b->train_Bps = seen;
	if (b->distrust && b->capacity_Bps) {
		b->distrust--;
		both = min(both, b->capacity_Bps + (b->capacity_Bps >> 2));
	}
	b->capacity_Bps = b->lent ? both : max(b->capacity_Bps, both);
	b->lent = 0;
}

/* The fastest train of an overflowing burst is the path's rate, unless it says that there was room. */
static __always_inline void burst_learn_overflow(const struct tcp_sock *tp, struct plait_sock *s, struct burst *b)
{
	if (b->best_Bps < b->capacity_Bps - (b->capacity_Bps >> 3)) {
		b->capacity_Bps = b->best_Bps;
		return;
	}
	if (s->lost_in_flight <= carried(s))
		return; /* as many have lately arrived: it was no queue that lost them */
	b->capacity_Bps = min(burst_arrival_Bps(tp, s) * max(b->sharing, 1U), b->capacity_Bps - (b->capacity_Bps >> 2));
	b->distrust = BURST_DISTRUST;
}

/* Whether what was lost of late was lost by a queue, and not by a link whose delay happened to vary. */
static __always_inline bool burst_overflow(struct plait_sock *s, struct burst *b)
{
	if (!s->round_losses || !burst_queue_stands(s))
		return false;
	if (!b->counted) {
		b->counted = 1;
		b->suspect = min(b->suspect + 1, 255);
	}
	return s->round_losses >= BURST_OVERFLOW_PACKETS || b->suspect >= BURST_OVERFLOW_BURSTS;
}

static __always_inline void burst_learn(const struct tcp_sock *tp, struct plait_sock *s, struct burst *b)
{
	/* What an application, or MPTCP, hands out bit by bit comes through as slowly on any path; it tells a rate only where it waits or overflows. */
	if (s->trains == 1 && s->train_sparse && s->round_losses < BURST_OVERFLOW_PACKETS && !burst_queue_stands(s)) {
		s->trains = 0;
		return;
	}
	if (s->trains == 1) {
		if (!b->counted)
			b->suspect = 0;
		b->counted = b->overflowed = 0;
		b->best_Bps = 0;
		burst_learn_train(s, b);
	}
	b->best_Bps = max(b->best_Bps, b->seen_Bps);
	if (!b->overflowed && burst_overflow(s, b)) {
		b->overflowed = 1;
		burst_learn_overflow(tp, s, b);
	}
}

static __always_inline void burst_init(struct sock *sk, struct plait_sock *s)
{
	set_pacing(sk, s, true);
}

/* Where several packets are lost before anything is known of the path it is Reno: most of what went has been too much. Otherwise the window stays. */
static __always_inline __u32 burst_ssthresh(const struct tcp_sock *tp, struct plait_sock *s)
{
	const struct burst *b = (const struct burst *)s->private;

	return b->capacity_Bps || tp->lost_out < BURST_OVERFLOW_PACKETS ? max(tp->snd_ssthresh, tp->snd_cwnd) : reno_ssthresh(tp);
}

/*
 * A window-based algorithm takes over. Where a queue stands this window fills the path already, but what measures round trips from now on takes the
 * queue for a part of them and finds no end of slow start (HyStart): it ends after one round trip more.
 */
static __always_inline void burst_leave(struct tcp_sock *tp, const struct plait_sock *s)
{
	if (burst_queue_stands(s))
		tp->snd_ssthresh = min(tp->snd_ssthresh, 2 * tp->snd_cwnd);
}

/* The first packets after an idle time go as one train; later ones in pairs, as fast as a millisecond's timer can pace them. */
static __always_inline __u32 burst_min_tso_segs(const struct tcp_sock *tp, const struct plait_sock *s)
{
	const struct burst *b = (const struct burst *)s->private;

	return tp->packets_out || (b->crowd && (b->sharing > 1 || tp->data_segs_out < BURST_TRAIN_PACKETS)) ? 2 : BURST_TRAIN_PACKETS;
}

/* Into a queue that stands nothing goes faster than 5/4 of what has come out of it. */
static __always_inline __u64 burst_rate_Bps(const struct tcp_sock *tp, const struct plait_sock *s, const struct burst *b)
{
	if (!s->ack_us || !b->best_Bps || !burst_queue_stands(s))
		return burst_share(tp, s, b, b->capacity_Bps, 1);
	return burst_share(tp, s, b, min(b->capacity_Bps, b->best_Bps + (b->best_Bps >> 2)), 1);
}

/* Before the first packet after an idle time, and when what waits is more than goes at once. */
static __always_inline void burst_begin(struct sock *sk, struct plait_sock *s)
{
	struct burst *b = (struct burst *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);

	tp->snd_cwnd = b->capacity_Bps ? burst_window(tp, s, b) : burst_start(tp, b, tp->lost ? tp->snd_cwnd : max(tp->snd_cwnd, initial_window(s)));
	if (b->lent)
		sk->sk_pacing_rate = b->capacity_Bps ? min(burst_rate_Bps(tp, s, b), (__u64)sk->sk_max_pacing_rate) : sk->sk_max_pacing_rate;
}

static __always_inline void burst_main(struct sock *sk, struct plait_sock *s, const struct rate_sample *rs, bool una_advanced)
{
	struct burst *b = (struct burst *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);

	if (s->train_measured)
		burst_learn(tp, s, b);
	if (!b->capacity_Bps) {
		sk->sk_pacing_rate = sk->sk_max_pacing_rate;
		if (in_cwnd_reduction(ca_state(sk)) && tp->snd_ssthresh < tp->prior_cwnd)
			proportional_rate_reduction(tp, s, rs, una_advanced);
		else
			reno_cong_avoid(tp, rs->acked_sacked);
		return;
	}
	tp->snd_cwnd = burst_window(tp, s, b);
	sk->sk_pacing_rate = min(burst_rate_Bps(tp, s, b), (__u64)sk->sk_max_pacing_rate);
}

#endif

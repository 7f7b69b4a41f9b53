/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Westwood+: Reno, but after a loss the window is what the path was seen to deliver, and not half of what it was.
 *
 *	every max(RTT, 50 ms):  b = acknowledged bytes / time;  B1 <- 7/8 B1 + 1/8 b;  B <- 7/8 B + 1/8 B1
 *	after a loss:           ssthresh = B * RTTmin / MSS
 *
 * ssthresh and window are set when a reduction is over, ssthresh alone at a timeout; until then Reno's half holds, and beyond that
 * where a connection has come from another algorithm so lately that B is not known: the kernel's would go on with 2 packets. The
 * sampling over a round trip, and not over single ACKs, is the "+": compressed ACKs no longer inflate B. Of duplicate ACKs each
 * counts for a packet, which the cumulative ACK that follows then does not count again.
 *
 * Times are in us where the kernel has jiffies (4 ms): B * RTTmin comes out exact, where the kernel's is up to a jiffy's worth
 * more. RTTmin is the least round trip since the last timeout.
 *
 * L. Grieco, S. Mascolo, Performance Evaluation and Comparison of Westwood+, New Reno, and Vegas TCP Congestion Control, ACM
 * CCR 34(2), 2004.
 */
#ifndef PLAIT_CC_WESTWOOD_H
#define PLAIT_CC_WESTWOOD_H

#include "../window.h"

enum {
	WESTWOOD_MIN_WINDOW_US = 50000,
	WESTWOOD_INIT_RTT_US = 20000000, /* before the first sample: no window of bandwidth is closed on a guess */
	WESTWOOD_FILTER_SHIFT = 3,	 /* the filter's pole, 7/8 */
};

struct westwood {
	__u64 window_us; /* start of the window of bandwidth */
	__u64 once_filtered_Bps;
	__u64 bandwidth_Bps;
	__u32 bytes; /* acknowledged in the window */
	__u32 duplicate_bytes; /* counted for duplicate ACKs, to be taken off a cumulative one */
	__u32 last_una;
	__u32 rtt_us;
	__u32 min_rtt_us;
	__u32 reset_min_rtt; /* 1: the next ACK starts it anew */
	__u32 took_over; /* 1: the connection was under way when this began */
	__u32 pad;
};

_Static_assert(sizeof(struct westwood) <= PLAIT_PRIVATE_WORDS * 8, "private state");

static __always_inline void westwood_init(struct sock *sk, struct plait_sock *s)
{
	struct westwood *w = (struct westwood *)s->private;
	const struct tcp_sock *tp = tcp_sk(sk);

	w->window_us = tp->tcp_mstamp;
	w->last_una = tp->snd_una;
	w->rtt_us = WESTWOOD_INIT_RTT_US;
	w->min_rtt_us = WESTWOOD_INIT_RTT_US;
	w->reset_min_rtt = 1;
	w->took_over = tp->delivered > 1;
}

static __always_inline __u64 westwood_filtered(__u64 old, __u64 sample)
{
	return ((old << WESTWOOD_FILTER_SHIFT) - old + sample) >> WESTWOOD_FILTER_SHIFT;
}

static __always_inline void westwood_close_window(struct westwood *w, __u64 now_us)
{
	__u64 elapsed_us = now_us - w->window_us, sample_Bps;

	if (elapsed_us <= max(w->rtt_us, (__u32)WESTWOOD_MIN_WINDOW_US))
		return;
	sample_Bps = w->bytes * USEC_PER_SEC / elapsed_us;
	if (!w->bandwidth_Bps && !w->once_filtered_Bps) {
		w->once_filtered_Bps = sample_Bps;
		w->bandwidth_Bps = sample_Bps;
	} else {
		w->once_filtered_Bps = westwood_filtered(w->once_filtered_Bps, sample_Bps);
		w->bandwidth_Bps = westwood_filtered(w->bandwidth_Bps, w->once_filtered_Bps);
	}
	w->bytes = 0;
	w->window_us = now_us;
}

/* The bytes this ACK stands for. */
static __always_inline __u32 westwood_acked_bytes(struct westwood *w, __u32 una, __u32 mss)
{
	__u32 bytes = una - w->last_una;

	w->last_una = una;
	if (!bytes) {
		w->duplicate_bytes += mss;
		return mss;
	}
	if (bytes <= mss)
		return bytes;
	if (w->duplicate_bytes >= bytes) {
		w->duplicate_bytes -= bytes;
		return mss;
	}
	bytes -= w->duplicate_bytes;
	w->duplicate_bytes = 0;
	return bytes;
}

static __noinline int westwood_ack(const struct tcp_sock *tp, struct westwood *w)
{
	westwood_close_window(w, tp->tcp_mstamp);
	w->bytes += westwood_acked_bytes(w, tp->snd_una, tp->mss_cache);
	if (w->reset_min_rtt) {
		w->min_rtt_us = w->rtt_us;
		w->reset_min_rtt = 0;
	} else {
		w->min_rtt_us = min(w->min_rtt_us, w->rtt_us);
	}
	return 0;
}

/* The kernel does the window of bandwidth before it has this ACK's round trip: so the order here. */
static __always_inline void westwood_pkts_acked(struct sock *sk, struct plait_sock *s, const struct ack_sample *sample)
{
	struct westwood *w = (struct westwood *)s->private;
	__s32 rtt_us = sampled_rtt_us(s, sample);

	westwood_ack(tcp_sk(sk), w);
	if (rtt_us > 0)
		w->rtt_us = rtt_us;
}

/* What the path holds without a queue, in packets. */
static __always_inline __u32 westwood_window(const struct tcp_sock *tp, const struct westwood *w)
{
	__u64 packets = w->bandwidth_Bps * w->min_rtt_us / USEC_PER_SEC / max(tp->mss_cache, 1u);

	return min(max(packets, 2ULL), (__u64)TCP_INFINITE_SSTHRESH);
}

static __always_inline void westwood_event(struct sock *sk, struct plait_sock *s, enum tcp_ca_event event)
{
	struct westwood *w = (struct westwood *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);
	bool unknown = w->took_over && !w->bandwidth_Bps;

	if (event == CA_EVENT_COMPLETE_CWR && !unknown) {
		__u32 window = westwood_window(tp, w);

		tp->snd_ssthresh = window;
		tp->snd_cwnd = window;
	} else if (event == CA_EVENT_LOSS) {
		if (!unknown)
			tp->snd_ssthresh = westwood_window(tp, w);
		w->reset_min_rtt = 1;
	}
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Signals of a socket: what its ACKs say about the path, and how long its bursts take. */
#ifndef PLAIT_MEASURE_H
#define PLAIT_MEASURE_H

#include "rules.h"

enum {
	/* Bursts, or time, after which a minimum of the round trip starts to be forgotten. */
	MIN_RTT_BURSTS = 8,
	MIN_RTT_WINDOW_US = 10 * USEC_PER_SEC,
	/* Packets of a train that must have arrived before its dispersion is worth something. */
	TRAIN_MIN_PACKETS = 6,
	/* Bursts of a connection that are compared: the squares of their logarithms' sums stay within 64 bits, of thousands of connections. */
	COMPARED_BURSTS = 1 << 18,
	/* After this time the ticks of the peer's clock can be told from those of 4 ms and longer. */
	PEER_CLOCK_MS = 16,
};

/* The bucket of a latency: quarter octaves from 64 us, so that a bucket's bounds are 19 % apart. */
static __always_inline __u32 latency_bucket(__u64 us)
{
	__u32 octave = 0, quarter;

	if (us < 64)
		return 0;
	us >>= 4; /* from here four quarters an octave: 4, 5, 6, 7 */
	for (int i = 0; i < 24 && us >= 8; i++) {
		us >>= 1;
		octave++;
	}
	quarter = us & 3;
	return min(octave * 4 + quarter, (__u32)PLAIT_LATENCY_BUCKETS - 1);
}

/* A bucket's middle as a logarithm: 32nds of an octave above 64 us * 2^8, from where latencies are near, so that sums are small. */
static __always_inline __s32 latency_log(__u32 bucket)
{
	__s32 quarter = bucket & 3;

	return ((__s32)(bucket >> 2) - 8) * 32 + 5 + quarter * 7 + (quarter ? 3 : 0);
}

static __always_inline void local_of(struct sock *sk, __u32 address[4])
{
	if (sk->__sk_common.skc_family == AF_INET6) {
		for (int i = 0; i < 4; i++)
			address[i] = sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[i];
		return;
	}
	address[0] = address[1] = 0;
	address[2] = bpf_htonl(0xffff);
	address[3] = sk->__sk_common.skc_rcv_saddr;
}

static struct plait_latency empty_latency;
static __u64 last_entry;

/* Adds a finished burst to the comparison of its destination. */
static __noinline int latency_add(struct sock *sk, struct plait_sock *s, __u64 latency_us, __u32 bytes)
{
	struct plait_prefix key = {};
	struct plait_latency *l;
	struct plait_group *g;
	__u32 bucket = latency_bucket(latency_us);
	__s64 log = latency_log(bucket);

	/* The application's choice and not chance has put it into its group, or nobody sees held-out ones like it begin a burst: MPTCP does not use tcp_sendmsg(). */
	if (!sk || s->asked || is_subflow(sk))
		return 0;
	/* A managed socket looks for its rule in its own time: it may have to leave. */
	if (outdated(s) && (s->kind == SOCK_MANAGED || !revise(sk, s)))
		return 0;
	if (bucket < PLAIT_LATENCY_BUCKETS)
		__sync_fetch_and_add(&plait_bursts[s->kind != SOCK_MANAGED][bucket], 1);
	prefix_of(sk, &key);
	key.policy = s->policy;
	l = bpf_map_lookup_elem(&plait_latencies, &key);
	if (!l) {
		bpf_map_update_elem(&plait_latencies, &key, &empty_latency, BPF_NOEXIST);
		l = bpf_map_lookup_elem(&plait_latencies, &key);
		if (!l)
			return 0;
	}
	if (!l->entry) /* of two at once the first */
		__sync_val_compare_and_swap(&l->entry, 0, __sync_fetch_and_add(&last_entry, 1) + 1);
	g = s->kind == SOCK_MANAGED ? &l->managed : &l->holdout;
	if (s->counted_in != (__u32)l->entry) {
		s->counted_in = l->entry;
		s->counted = 0;
		s->logs = 0;
		__sync_fetch_and_add(&g->connections, 1);
	}
	if (s->counted == COMPARED_BURSTS)
		return 0;
	__sync_fetch_and_add(&g->squares, 2 * (__u64)s->counted + 1); /* (n+1)^2 - n^2 */
	__sync_fetch_and_add(&g->logs_squared, log * (2 * (__s64)s->logs + log));	     /* (x+l)^2 - x^2 */
	__sync_fetch_and_add(&g->products, s->logs + ((__s64)s->counted + 1) * log); /* (n+1)(x+l) - nx */
	s->counted++;
	s->logs += log;
	__sync_fetch_and_add(&g->bursts, 1);
	__sync_fetch_and_add(&g->bytes, bytes);
	if (bucket < PLAIT_LATENCY_BUCKETS)
		__sync_fetch_and_add(&g->buckets[bucket], 1);
	return 0;
}

/* The minimum of the round trip, and what was carried, are those of two windows, so that they age. */
static __always_inline void extremes_age(struct plait_sock *s, __u64 now_us)
{
	s->min_rtt_past_us = s->min_rtt_us;
	s->min_rtt_us = 0;
	s->carried_past = s->carried;
	s->carried = 0;
	s->min_rtt_bursts = 0;
	s->min_rtt_since_us = now_us;
}

/* A round trip is over: what was in flight in the one before it has arrived, or some of it was found lost. */
static __always_inline void in_flight_ages(struct plait_sock *s)
{
	if (!s->round_losses)
		s->carried = max(s->carried, s->in_flight_past);
	s->in_flight_past = s->round_losses ? 0 : s->in_flight;
	s->in_flight = 0;
}

/* Everything written so far is acknowledged and a byte is about to leave. */
static __always_inline void burst_begins(const struct tcp_sock *tp, struct plait_sock *s, __u64 now_us)
{
	s->burst_start_us = now_us;
	s->burst_seq = tp->snd_una;
	s->ack_us = 0;
	s->trains = 0;
	s->round_losses = 0;
}

/* The last byte is acknowledged. */
static __always_inline void burst_ends(struct sock *sk, struct plait_sock *s, __u64 now_us)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u64 latency_us = now_us - s->burst_start_us;
	__u32 bytes = tp->snd_una - s->burst_seq;

	in_flight_ages(s);
	in_flight_ages(s); /* nothing is any more */
	s->burst_start_us = 0;
	s->idle_since_us = now_us;
	s->gathered.bursts++;
	s->gathered.burst_bytes = bytes;
	s->gathered.burst_latency_us = latency_us;
	if (++s->min_rtt_bursts >= MIN_RTT_BURSTS)
		extremes_age(s, now_us);
	latency_add(sk, s, latency_us, bytes);
}

/* What waits to be sent is the end of the connection and no data. That is no burst, and of held-out connections nobody would see it begin. */
static __always_inline bool only_fin(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u8 state = sk->__sk_common.skc_state;

	return (state == TCP_FIN_WAIT1 || state == TCP_LAST_ACK) && tp->write_seq - tp->snd_una == 1;
}

static __always_inline bool all_acknowledged(const struct tcp_sock *tp)
{
	return !tp->packets_out && tp->snd_una == tp->write_seq;
}

/* By the clock of tcp_mstamp, which is when the socket last heard or sent something: hours ago, maybe, where an application writes or asks, or plait takes the connection. */
static __always_inline __u64 clock_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

static __always_inline void train_begins(const struct tcp_sock *tp, struct plait_sock *s, __u64 now_us)
{
	s->train_start_us = now_us;
	s->train_sent_us = tp->first_tx_mstamp;
	s->train_tsval = tp->rx_opt.rcv_tsval;
	s->train_delivered = tp->delivered;
}

/* RFC 7323 lets a peer's clock tick in 1 ms to 1 s, and Linux has one of microseconds for some routes: whether it is the usual 1 ms shows between bursts. */
static __always_inline void peer_clock(const struct tcp_sock *tp, struct plait_sock *s, __u64 now_us)
{
	__u32 ms = (now_us - s->train_start_us) / USEC_PER_MSEC, ticks = tp->rx_opt.rcv_tsval - s->train_tsval;

	if (s->train_start_us && ms >= PEER_CLOCK_MS)
		s->peer_ms = ticks >= ms / 2 && ticks <= ms * 2;
}

/*
 * How long the train took to come through. ACKs queue and are held back on their way as all packets; their timestamps say within a
 * millisecond when the peer sent them, and so between what bounds the time here can be that of the way there.
 */
static __always_inline __u64 train_us(const struct tcp_sock *tp, const struct plait_sock *s, __u64 now_us)
{
	__s32 ticks = tp->rx_opt.rcv_tsval - s->train_tsval;
	__u64 here_us = now_us - s->train_start_us, there_us = (__u64)ticks * USEC_PER_MSEC;

	if (!s->peer_ms || ticks < 0) /* an ACK that was overtaken says nothing */
		return here_us;
	return min(max(here_us + USEC_PER_MSEC, there_us) - USEC_PER_MSEC, there_us + USEC_PER_MSEC);
}

/* The rate at which packets sent back to back come through, from the spacing of their ACKs; and whether they were sent so. */
static __always_inline void measure_train(const struct tcp_sock *tp, struct plait_sock *s, __u64 now_us)
{
	__u32 packets;
	__u64 took_us;

	if (!s->ack_us) {
		s->ack_us = now_us;
		s->ack_delivered = tp->delivered;
		peer_clock(tp, s, now_us);
		train_begins(tp, s, now_us);
		return;
	}
	packets = tp->delivered - s->train_delivered;
	if (packets < TRAIN_MIN_PACKETS || now_us == s->train_start_us)
		return;
	took_us = train_us(tp, s, now_us);
	s->train_sparse = tp->first_tx_mstamp - s->train_sent_us > took_us >> 2;
	s->dispersion_Bps = (__u64)packets * tp->mss_cache * USEC_PER_SEC / took_us;
	train_begins(tp, s, now_us);
	s->train_measured = 1;
	if (s->trains < 255)
		s->trains++;
}

/*
 * Where few packets are on their way and those behind one are lost, its receiver holds the ACK back for another that does not come: 40 ms (Linux) or more (RFC 9293, section 3.8.6.3). The round trip that
 * shows then is no queue's. Fewer packets than these, acknowledged one by one, make no queue that grows so much from one to the next unless the path has less than 400 kbit/s.
 */
#define HELD_MIN_US 30000U
#define HELD_PACKETS 8

static __always_inline bool held_back(const struct tcp_sock *tp, const struct plait_sock *s, const struct rate_sample *rs)
{
	__u32 usual_us = max(s->last_rtt_us, min_rtt_us(s)); /* where all are acknowledged one by one the least has aged when the path has become longer */

	return rs->acked_sacked <= 1 && !tp->sacked_out && rs->prior_in_flight <= HELD_PACKETS && s->last_rtt_us && (__u32)rs->rtt_us > usual_us + HELD_MIN_US;
}

/* On every ACK. */
static __always_inline void measure(struct sock *sk, struct plait_sock *s, const struct rate_sample *rs)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u64 now_us = tp->tcp_mstamp;

	s->round_start = 0;
	s->train_measured = 0; /* also where an ACK comes with what the peer sends, and acknowledges nothing new */
	if (rs->delivered > 0 && (__s32)(rs->prior_delivered - s->round_delivered) >= 0) {
		s->round_delivered = tp->delivered;
		s->round_start = 1;
		in_flight_ages(s);
		s->round_losses = 0;
		s->rate_Bps = s->rate_round_Bps;
		s->rate_round_Bps = 0;
		if (now_us - s->min_rtt_since_us > MIN_RTT_WINDOW_US && s->min_rtt_us)
			extremes_age(s, now_us);
	}
	if (rs->losses > 0) {
		if (!s->round_losses) {
			s->lost_in_flight = rs->prior_in_flight;
			s->rtt_at_loss_min_us = s->lossy_rounds ? min(s->rtt_at_loss_min_us, s->last_rtt_us) : s->last_rtt_us;
			s->lossy_rounds += s->lossy_rounds < 255;
		}
		s->round_losses += rs->losses;
		s->gathered.rtt_at_loss_us = s->last_rtt_us;
		s->rtt_at_loss_max_us = max(s->rtt_at_loss_max_us, s->last_rtt_us);
		/* A connection that was there before has no hook for retransmissions: what one ACK shows as lost is the run. */
		if (!s->hooked && rs->losses >= 3)
			s->gathered.lost_burst += rs->losses;
		else if (!s->hooked)
			s->gathered.lost_single += rs->losses;
	} else {
		s->in_flight = max(s->in_flight, rs->prior_in_flight);
	}
	if (acked_rtt_us(s, rs) > 0) {
		__u32 rtt_us = rs->rtt_us;

		if (!held_back(tp, s, rs))
			s->last_rtt_us = rtt_us;
		if (!s->min_rtt_us || rtt_us < s->min_rtt_us)
			s->min_rtt_us = rtt_us;
	}
	s->gathered.delivered += rs->acked_sacked;
	if (rs->delivered > 0 && rs->interval_us > 0) {
		__u64 rate_Bps = (__u64)rs->delivered * tp->mss_cache * USEC_PER_SEC / (__u64)rs->interval_us;

		s->gathered.rate_bps = rate_Bps * 8;
		s->rate_round_Bps = max(s->rate_round_Bps, rate_Bps);
	}
	if (rs->acked_sacked)
		measure_train(tp, s, now_us);
}

static __always_inline void flow_of(struct sock *sk, struct plait_flow *f)
{
	f->local_port = sk->__sk_common.skc_num;
	f->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	f->netns = sk->__sk_common.skc_net.net->ns.inum;
	local_of(sk, (__u32 *)f->local);
	remote_of(sk, (__u32 *)f->remote);
}

/* Ends the run of adjacent retransmissions: at most two are non-burst loss, more are burst loss (R-TCP thesis). */
static __always_inline void run_ends(struct plait_sock *s)
{
	if (s->run_segments >= 3)
		s->gathered.lost_burst += s->run_segments;
	else
		s->gathered.lost_single += s->run_segments;
	s->run_segments = 0;
}

/* Sends what has gathered, if it is time or the socket is at its end. */
static __noinline int sample_send(struct sock *sk, struct plait_sock *s, bool closing)
{
	struct gathered *g = &s->gathered;
	const struct tcp_sock *tp;
	struct plait_sample *out;
	__u64 now_us;

	if (!sk)
		return 0;
	tp = tcp_sk(sk);
	now_us = clock_us();
	if (!closing && now_us - g->at_us < plait_daemon.sample_ns / 1000)
		return 0;
	run_ends(s);
	out = bpf_ringbuf_reserve(&plait_samples, sizeof(*out), 0);
	if (!out) {
		count(samples_dropped);
		return 0;
	}
	if (s->kind == SOCK_OBSERVED) { /* no hook on every ACK: what the kernel itself keeps */
		g->delivered = tp->delivered - g->observed_delivered;
		g->observed_delivered = tp->delivered;
		s->algorithm = PLAIT_DEFAULT;
	}
	*out = (struct plait_sample){
		.cookie = s->cookie,
		.at_us = now_us,
		.rate_bps = g->rate_bps,
		.dispersion_bps = s->dispersion_Bps * 8,
		.interval_us = g->at_us ? now_us - g->at_us : 0,
		.srtt_us = srtt_us(tp),
		.min_rtt_us = s->kind == SOCK_OBSERVED ? tp->rtt_min.s[0].v : min_rtt_us(s),
		.delivered = g->delivered,
		.lost_single = g->lost_single,
		.lost_burst = g->lost_burst,
		.rtt_at_loss_us = g->rtt_at_loss_us,
		.spurious_recoveries = g->spurious_recoveries,
		.idle_restarts = g->idle_restarts,
		.bursts = g->bursts,
		.burst_bytes = g->burst_bytes,
		.burst_latency_us = g->burst_latency_us,
		.cwnd_segments = tp->snd_cwnd,
		.ssthresh_segments = tp->snd_ssthresh,
		.mss_bytes = tp->mss_cache,
		.algorithm = s->algorithm,
		.bulk = s->bulk,
		.policy = s->policy,
		.closed = closing,
		.generation = s->generation,
		.rtt_at_loss_min_us = s->lossy_rounds ? s->rtt_at_loss_min_us : 0,
		.rtt_at_loss_max_us = s->rtt_at_loss_max_us,
		.lossy_rounds = s->lossy_rounds,
	};
	flow_of(sk, &out->flow);
	bpf_ringbuf_submit(out, 0);
	g->at_us = now_us;
	g->delivered = g->lost_single = g->lost_burst = 0;
	g->rtt_at_loss_us = g->spurious_recoveries = g->idle_restarts = g->bursts = 0;
	s->lossy_rounds = 0;
	s->rtt_at_loss_max_us = 0;
	return 0;
}

#endif

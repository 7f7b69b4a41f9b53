/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Window-based control as net/ipv4/tcp_input.c and tcp_output.c do it around algorithms that have no cong_control:
 * slow start (RFC 5681), proportional rate reduction (RFC 6937), the window after an idle time (RFC 2861), pacing rate.
 * A congestion control with cong_control, as ours must be to pace bursts, has to do all of it itself. Not tcp_cwnd_application_limited(): the kernel
 * asks for it where no ACK has let a window grow, or could have, for an RTO (tcp_cong_avoid()), and after that time an idle connection restarts anyway.
 */
#ifndef PLAIT_WINDOW_H
#define PLAIT_WINDOW_H

#include "sock.h"

/* Exponential growth up to ssthresh; returns how many of the acknowledged packets are left for congestion avoidance. */
static __always_inline __u32 slow_start(struct tcp_sock *tp, __u32 acked)
{
	__u32 cwnd = min(tp->snd_cwnd + acked, tp->snd_ssthresh);

	acked -= cwnd - tp->snd_cwnd;
	tp->snd_cwnd = min(cwnd, tp->snd_cwnd_clamp);
	return acked;
}

/* One packet more for every w acknowledged. */
static __always_inline void additive_increase(struct tcp_sock *tp, __u32 w, __u32 acked)
{
	__u32 cwnd = tp->snd_cwnd, cnt = tp->snd_cwnd_cnt;

	w = max(w, 1u);
	if (cnt >= w) { /* w has shrunk */
		cnt = 0;
		cwnd++;
	}
	cnt += acked;
	if (cnt >= w) {
		__u32 delta = cnt / w;

		cnt -= delta * w;
		cwnd += delta;
	}
	tp->snd_cwnd_cnt = cnt;
	tp->snd_cwnd = min(cwnd, tp->snd_cwnd_clamp);
}

static __always_inline bool in_cwnd_reduction(__u8 state)
{
	return state == TCP_CA_CWR || state == TCP_CA_Recovery;
}

/*
 * tcp_may_raise_cwnd(): where packets are known to overtake others, whatever arrives counts, in order or not; with each gap as a doubt the window would grow by the few
 * that close one.
 */
static __always_inline bool may_grow(struct sock *sk, const struct rate_sample *rs, bool una_advanced)
{
	return una_advanced || (rs->acked_sacked && tcp_sk(sk)->reordering > (__u32)sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_reordering);
}

/* RFC 6937 with the reduction bound the kernel uses: the window of a recovery. */
static __always_inline void proportional_rate_reduction(struct tcp_sock *tp, const struct plait_sock *s, const struct rate_sample *rs,
							bool una_advanced)
{
	__u32 acked = rs->acked_sacked;
	__u32 inflight = packets_in_flight(tp), ssthresh = tp->snd_ssthresh, prior = tp->prior_cwnd;
	__s32 delta = ssthresh - inflight, send;

	if (!acked || !prior)
		return;
	if (delta < 0) {
		send = ((__u64)ssthresh * s->prr_delivered + prior - 1) / prior - tp->prr_out;
	} else {
		send = max((__s32)(s->prr_delivered - tp->prr_out), (__s32)acked);
		if (una_advanced && !rs->losses)
			send++;
		send = min(delta, send);
	}
	send = max(send, tp->prr_out ? 0 : 1);
	tp->snd_cwnd = max((__s32)inflight + send, 1);
}

/* tcp_current_ssthresh(): what is known about the path, for when the window is given up because of idleness. */
static __always_inline __u32 remembered_ssthresh(struct sock *sk, const struct tcp_sock *tp)
{
	if (in_cwnd_reduction(ca_state(sk)))
		return tp->snd_ssthresh;
	return max(tp->snd_ssthresh, (tp->snd_cwnd >> 1) + (tp->snd_cwnd >> 2));
}

/* tcp_init_cwnd(): the route's, where it has one and plait has seen the connection begin. */
static __always_inline __u32 initial_window(const struct plait_sock *s)
{
	return s->initial_packets ?: TCP_INIT_CWND;
}

/*
 * tcp_cwnd_restart(): half the window per RTO of idleness, down to the initial window; a time in which the peer's window is closed is one. To be asked when more has been written
 * (tcp_skb_entail()) and when the peer's window has changed (tcp_ack_update_window()), which may be more than once before anything leaves. Returns whether there was an idle time.
 */
static __always_inline bool window_after_idle(struct sock *sk, struct plait_sock *s)
{
	struct tcp_sock *tp = tcp_sk_mut(sk);
	__u32 rto = ((struct inet_connection_sock *)sk)->icsk_rto, cwnd = tp->snd_cwnd, restart = min(cwnd, initial_window(s));
	__s32 idle = (__u32)bpf_jiffies64() - tp->lsndtime;

	if (tp->packets_out || !rto || idle <= (__s32)rto || !sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_slow_start_after_idle)
		return false;
	tp->snd_ssthresh = remembered_ssthresh(sk, tp);
	for (int i = 0; i < 16 && (idle -= rto) > 0 && cwnd > restart; i++)
		cwnd >>= 1;
	tp->snd_cwnd = max(cwnd, restart);
	return true;
}

/* tcp_update_pacing_rate(): with no pacing on, it only sizes TSO packets. 200 % of the window per RTT below half of ssthresh, 120 % above, where no sysctl says otherwise. */
static __always_inline __u32 window_pacing_percent(const struct sock *sk)
{
	const struct netns_ipv4 *host = &sk->__sk_common.skc_net.net->ipv4;
	const struct tcp_sock *tp = tcp_sk(sk);

	return tp->snd_cwnd < tp->snd_ssthresh / 2 ? host->sysctl_tcp_pacing_ss_ratio : host->sysctl_tcp_pacing_ca_ratio;
}

static __always_inline void window_pacing_rate(struct sock *sk, __u32 percent, __u32 srtt_8ths_us)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u64 rate = (__u64)tp->mss_cache * ((USEC_PER_SEC / 100) << 3);

	rate *= percent;
	rate *= max(tp->snd_cwnd, tp->packets_out);
	if (srtt_8ths_us)
		rate /= srtt_8ths_us;
	sk->sk_pacing_rate = min(rate, (__u64)sk->sk_max_pacing_rate);
}

/* tcp_tso_segs(), which takes the sysctl only where the algorithm does not say. */
static __always_inline __u32 window_min_tso_segs(const struct sock *sk)
{
	return sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_min_tso_segs;
}

static __always_inline void end_pacing(struct sock *sk, struct plait_sock *s)
{
	if (!s->pacing_ours)
		return;
	s->pacing_ours = 0;
	/* an application that has limited its rate meanwhile (SO_MAX_PACING_RATE) needs it, too, and found it on */
	if (sk->sk_pacing_status == SK_PACING_NEEDED && sk->sk_max_pacing_rate == ~0UL)
		sk->sk_pacing_status = SK_PACING_NONE;
}

/*
 * More may go at once than the clock of ACKs lets out: the writer was late, or MPTCP has kept a subflow waiting. Short queues do not hold that. What goes in a millisecond, or
 * in whatever time a driver asks for, is put together anyway (tcp_tso_autosize()). A window that is kept full needs no pacing, and must not have it: beside flows that go by the
 * clock it takes more than its share.
 */
static __always_inline bool leaves_room(const struct sock *sk, const struct rate_sample *rs)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u32 clocked = tp->packets_out ? rs->acked_sacked : 0; /* the ACK of all there was is no clock */
	__s64 room = (__s64)tp->snd_cwnd - packets_in_flight(tp) - clocked;

	return room > TCP_INIT_CWND && (__u64)room * tp->mss_cache > sk->sk_pacing_rate >> (sk->sk_pacing_shift & 63);
}

/*
 * Algorithms that pace need the kernel's own pacing timer if no fq qdisc is there; the others must run without it. But not before the departure time of the next
 * packet: sent earlier it would have that time stamp all the same, and the round trip, and the least one of all, would be too short by the difference
 * (tcp_write_xmit(), tcp_update_skb_after_send()). Then pacing goes on, and whoever does without tries again with the next ACK (window_control()).
 */
static __always_inline void set_pacing(struct sock *sk, struct plait_sock *s, bool on)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (on && sk->sk_pacing_status == SK_PACING_NONE) {
		sk->sk_pacing_status = SK_PACING_NEEDED;
		s->pacing_ours = 1;
	} else if (!on && tp->tcp_wstamp_ns <= tp->tcp_clock_cache) {
		end_pacing(sk, s);
	}
}

#endif

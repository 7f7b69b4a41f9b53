/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections that are there already (iterator), and the first byte of bursts that plait does not control (tracing). */
#ifndef PLAIT_HOST_H
#define PLAIT_HOST_H

#include "find.h"
#include "sockops.h"

/* What a pass over all sockets is for: plait comes up, rules have changed, plait goes, somebody asks about a connection. */
enum { PASS_TAKE = 1, PASS_REVISE = 2, PASS_RELEASE = 3, PASS_FIND = 4 };
__u32 plait_pass;

/* Says whether the connection is plait's now. */
static __always_inline bool take(struct tcp_sock *tp)
{
	__u32 index, generation = plait_daemon.generation;
	struct sock *sk = (struct sock *)tp;
	struct plait_policy *p = policy_of(sk, &index);
	struct plait_sock *s;

	if (!p || !p->managed)
		return false;
	s = bpf_sk_storage_get(&plait_socks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s)
		return false;
	s->cookie = bpf_get_socket_cookie(tp);
	s->policy = index;
	s->generation = generation;
	s->marked = chosen(sk, 0);
	s->burst_start_us = 0; /* of one that was plait's before, nobody has seen the end */
	s->gathered = (struct gathered){}; /* of what it did while it was held out, or away */
	s->run_segments = 0;
	if (!s->asked && is_held_out(s, p)) {
		s->kind = SOCK_HOLDOUT;
		count(held_out);
		return false;
	}
	if (bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, plait_name, sizeof(plait_name))) {
		count(refused);
		return false;
	}
	s->marked = 1; /* also where plait_init() has left again at once */
	count(attached);
	return true;
}

static __always_inline void release(struct tcp_sock *tp, struct plait_sock *s)
{
	if (s && s->kind == SOCK_MANAGED) /* else revise() has said what it is now */
		s->kind = 0;
	if (bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, plait_daemon.fallback, sizeof(plait_daemon.fallback)))
		count(refused);
	else
		count(fell_back);
}

/* Puts a connection under the rules of now. */
static __always_inline void settle(struct tcp_sock *tp, bool ours, bool defaults)
{
	struct sock *sk = (struct sock *)tp;
	struct plait_sock *s = bpf_sk_storage_get(&plait_socks, sk, 0, 0);

	if (s && s->kind == SOCK_MANAGED && !ours)
		return; /* the application has chosen another since */
	if (s && s->kind && revise(sk, s))
		return;
	if (ours && s) {
		release(tp, s);
		return;
	}
	/* What is called plait and is not known here was a dead daemon's. When plait comes up nobody can tell any more who chose the default. */
	if (!ours && plait_pass != PASS_TAKE && chosen(sk, s))
		return;
	if ((ours || defaults) && in_cgroup(sk) && !take(tp) && ours)
		release(tp, s);
}

SEC("iter/tcp")
int plait_sockets(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	__u8 name[16] = {};
	struct tcp_sock *tp;
	bool ours;

	if (!skc)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	if (bpf_getsockopt(tp, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		return 0;
	if (plait_pass == PASS_FIND) {
		find(tp, name);
		return 0;
	}
	ours = is_plait(name);
	if (skc->skc_state == TCP_LISTEN) {
		if (ours && plait_pass == PASS_TAKE)
			bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, plait_name, sizeof(plait_name)); /* its application asks once, when it starts: it may have asked a plait of before */
		return 0;
	}
	/* One end may have closed while all it wrote is still on its way: such a connection is not worth taking, but is given back. */
	if (plait_pass == PASS_RELEASE) {
		if (ours)
			release(tp, bpf_sk_storage_get(&plait_socks, (struct sock *)tp, 0, 0));
	} else if (skc->skc_state == TCP_ESTABLISHED || skc->skc_state == TCP_CLOSE_WAIT) {
		settle(tp, ours, on_default(name));
	}
	return 0;
}

/* A connection that is held out or observed, and still on the system's default of now: its application may have chosen another since, or the administrator. */
static __always_inline bool stays_on_default(const struct tcp_sock *tp)
{
	const struct tcp_congestion_ops *ops = ((const struct inet_connection_sock *)tp)->icsk_ca_ops;

	for (int i = 0; i < 16; i++) {
		if (ops->name[i] != plait_daemon.fallback[i])
			return false;
		if (!ops->name[i])
			break;
	}
	return true;
}

/* An application writes so much. Bursts of all connections begin here, whatever keeps the first packet back: copying it, and memory that must be fetched for that. */
static __always_inline void written(struct sock *sk, __u64 size)
{
	/* a cast alone would leave it a struct sock to the verifier */
	const struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct plait_sock *s;

	if (!tp || !size || tp->write_seq != tp->snd_una) /* of nothing there is no acknowledgement */
		return;
	s = bpf_sk_storage_get(&plait_socks, sk, 0, 0);
	if (!s || !s->kind)
		return;
	burst_begins(tp, s, clock_us()); /* anew, if what has begun is a write that failed */
	if (s->kind == SOCK_MANAGED)
		notice_pause(tp, s, s->burst_start_us);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(plait_sendmsg, struct sock *sk, const void *message, __u64 size)
{
	written(sk, size);
	return 0;
}

/* Until Linux 6.4 pages have a way of their own: those of files (sendfile, splice), and all of kTLS. The daemon loads it where the kernel has that. */
SEC("fentry/do_tcp_sendpages")
int BPF_PROG(plait_sendpages, struct sock *sk, const void *page, int offset, __u64 size)
{
	written(sk, size);
	return 0;
}

/* Called by tcp_ack() whenever the timer must be set anew, with the last acknowledgement in any case: to stop it. */
SEC("fentry/tcp_rearm_rto")
int BPF_PROG(plait_acked, struct sock *sk)
{
	const struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct plait_sock *s;

	if (!tp || !all_acknowledged(tp))
		return 0;
	s = bpf_sk_storage_get(&plait_socks, sk, 0, 0);
	if (!s || s->kind <= SOCK_MANAGED || !s->burst_start_us || tp->snd_una == s->burst_seq)
		return 0;
	if (stays_on_default(tp) && !chosen((struct sock *)tp, s))
		burst_ends((struct sock *)tp, s, tp->tcp_mstamp); /* as of those that plait controls */
	else
		s->burst_start_us = 0; /* what it says of another is no comparison */
	return 0;
}

#endif

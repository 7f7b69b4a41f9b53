/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* cgroup/sock_ops: which connections plait takes, which it holds out, and what they retransmit. */
#ifndef PLAIT_SOCKOPS_H
#define PLAIT_SOCKOPS_H

#include "measure.h"

static char plait_name[16] = "plait";

static __always_inline bool on_default(const __u8 *name)
{
	for (int i = 0; i < 16; i++) {
		if (name[i] != plait_daemon.fallback[i])
			return false;
		if (!name[i])
			break;
	}
	return true;
}

static __always_inline bool is_plait(const __u8 *name)
{
	return name[0] == 'p' && name[1] == 'l' && name[2] == 'a' && name[3] == 'i' && name[4] == 't' && !name[5];
}

/*
 * A socket that is connected anew (after connect() to AF_UNSPEC) has the congestion control of before, which plait has set, and what plait knows is of another path. Says whether
 * that was plait's, and not its application's choice.
 */
static __always_inline bool forget(struct bpf_sock_ops *ctx, struct sock *sk)
{
	struct plait_sock *s = bpf_sk_storage_get(&plait_socks, sk, 0, 0);
	__u8 name[16] = {};
	bool ours;

	if (!s)
		return false;
	if (s->asked && BPF_CORE_READ_BITFIELD((struct inet_connection_sock *)sk, icsk_ca_initialized))
		return false; /* of this connection: its application asked for plait while it connected, and the kernel does not begin again */
	ours = s->kind == SOCK_MANAGED && !s->asked && !bpf_getsockopt(ctx, SOL_TCP, TCP_CONGESTION, name, sizeof(name)) && is_plait(name);
	bpf_sk_storage_delete(&plait_socks, sk);
	return ours && !bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, plait_daemon.fallback, sizeof(plait_daemon.fallback));
}

/* An application that chose a congestion control keeps it, also if it is the default: on another host it is not. Of MPTCP's subflows nobody can tell that it was
 * the application: the kernel, too, sets theirs as if by setsockopt. */
static __always_inline bool undecided(struct bpf_sock_ops *ctx, struct sock *sk)
{
	__u8 name[16] = {};

	return (is_subflow(sk) || !BPF_CORE_READ_BITFIELD((struct inet_connection_sock *)sk, icsk_ca_setsockopt)) &&
	       !bpf_getsockopt(ctx, SOL_TCP, TCP_CONGESTION, name, sizeof(name)) && on_default(name);
}

static __always_inline void attach(struct bpf_sock_ops *ctx, struct plait_sock *s)
{
	if (!bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, plait_name, sizeof(plait_name))) {
		s->marked = 1;
		count(attached);
		return;
	}
	s->kind = 0;
	count(refused);
}

/* The kernel gives a subflow the congestion control of its MPTCP connection when it is accepted or joined (mptcp_sockopt_sync_locked), whatever it had. When
 * it has sent data that is over. */
static __always_inline void take_later(struct bpf_sock_ops *ctx, struct sock *sk, struct plait_sock *s)
{
	if (!((struct tcp_sock *)sk)->data_segs_out)
		return;
	s->later = false; /* the callback stays: another program on this cgroup may want it, too */
	if (undecided(ctx, sk))
		attach(ctx, s);
	else
		s->kind = 0;
}

static __always_inline int established(struct bpf_sock_ops *ctx, struct sock *sk)
{
	__u32 index, generation = plait_daemon.generation;
	struct plait_policy *p = policy_of(sk, &index);
	bool ours = forget(ctx, sk);
	struct plait_sock *s;

	if (!p || daemon_silent() || (!ours && !undecided(ctx, sk)))
		return 1;
	s = bpf_sk_storage_get(&plait_socks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s)
		return 1;
	s->cookie = bpf_get_socket_cookie(ctx);
	s->policy = index;
	s->generation = generation;
	if (!p->managed)
		s->kind = SOCK_OBSERVED;
	else
		s->kind = is_held_out(s, p) ? SOCK_HOLDOUT : SOCK_MANAGED;
	s->marked = chosen(sk, 0);
	s->hooked = s->kind != SOCK_HOLDOUT;
	s->later = s->kind == SOCK_MANAGED && is_subflow(sk);
	/* beside what other programs on this cgroup asked for */
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags |
				       (s->kind == SOCK_OBSERVED ? BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG : 0) |
				       (s->later ? BPF_SOCK_OPS_RTT_CB_FLAG : 0) |
				       (s->hooked ? BPF_SOCK_OPS_RETRANS_CB_FLAG : 0));
	if (s->kind == SOCK_HOLDOUT)
		count(held_out);
	if (s->kind == SOCK_MANAGED && !s->later)
		attach(ctx, s);
	return 1;
}

static __always_inline void retransmitted(struct bpf_sock_ops *ctx, const struct tcp_sock *tp, struct plait_sock *s)
{
	if (s->kind == SOCK_OBSERVED) /* of a managed one, measure() knows it */
		s->gathered.rtt_at_loss_us = tp->rack.rtt_us;
	/* The last segment may be shorter than it could: an application's write ended there. */
	if (s->run_segments && s->run_end - ctx->args[0] >= ctx->mss_cache)
		run_ends(s);
	s->run_segments += ctx->args[1];
	s->run_end = ctx->args[0] + ctx->args[1] * ctx->mss_cache;
}

/* Nobody sees when an observed connection has nothing on the way; but where the kernel's round trip is over later than one takes, it paused. Its bytes do not count, as no beginning is known. */
static __always_inline void observed_round(const struct tcp_sock *tp, struct plait_sock *s)
{
	__u64 due_us = s->idle_since_us + srtt_us(tp) + (srtt_us(tp) >> 2); /* a queue that grows is no pause */

	if (s->idle_since_us && tp->tcp_mstamp > due_us) {
		s->idle_since_us = due_us;
		notice_pause(tp, s, tp->tcp_mstamp);
	}
	s->idle_since_us = tp->tcp_mstamp;
	notice_rounds(s, 1 << BULK_SHIFT);
}

SEC("sockops")
int plait_sockops(struct bpf_sock_ops *ctx)
{
	struct plait_sock *s;
	struct tcp_sock *tp;
	struct sock *sk;

	if (!ctx->sk)
		return 1;
	tp = bpf_skc_to_tcp_sock(ctx->sk);
	if (!tp)
		return 1;
	sk = (struct sock *)tp;
	if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return established(ctx, sk);
	s = bpf_sk_storage_get(&plait_socks, sk, 0, 0);
	if (!s)
		return 1;
	if (ctx->op == BPF_SOCK_OPS_RETRANS_CB) {
		retransmitted(ctx, tp, s);
	} else if (ctx->op == BPF_SOCK_OPS_RTT_CB) { /* once in a round trip */
		if (s->later) {
			take_later(ctx, sk, s);
		} else if (s->kind == SOCK_OBSERVED && (!outdated(s) || revise(sk, s))) {
			observed_round(tp, s);
			sample_send(sk, s, false);
		}
	} else if (ctx->op == BPF_SOCK_OPS_STATE_CB && ctx->args[1] == TCP_CLOSE && s->kind == SOCK_OBSERVED) {
		sample_send(sk, s, true); /* of a managed one, plait_release does it */
	}
	return 1;
}

#endif

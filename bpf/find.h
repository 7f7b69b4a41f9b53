/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What plait why asks about a connection that tells the daemon nothing: one that is held out, given back or left alone. */
#ifndef PLAIT_FIND_H
#define PLAIT_FIND_H

#include "measure.h"

struct plait_question plait_asked;
struct plait_answer plait_found;

static __always_inline bool is_end(const __u8 *address, __u16 port, const __u8 *asked, __u16 asked_port)
{
	const __u32 *a = (const __u32 *)address, *b = (const __u32 *)asked;

	return port == asked_port && a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

static __always_inline bool is_asked_for(struct tcp_sock *tp, const struct plait_flow *f)
{
	const struct plait_question *q = &plait_asked;
	bool local;

	if (q->cookie)
		return bpf_get_socket_cookie(tp) == q->cookie;
	local = is_end(f->local, f->local_port, q->one, q->one_port);
	if (q->other_port)
		return local && is_end(f->remote, f->remote_port, q->other, q->other_port);
	return local || is_end(f->remote, f->remote_port, q->one, q->one_port);
}

static __always_inline void find(struct tcp_sock *tp, const __u8 *name)
{
	struct plait_answer *a = &plait_found;
	struct sock *sk = (struct sock *)tp;
	struct plait_flow flow = {};
	struct plait_sock *s;

	flow_of(sk, &flow);
	if (!flow.remote_port || !is_asked_for(tp, &flow)) /* 0: it listens */
		return;
	s = bpf_sk_storage_get(&plait_socks, sk, 0, 0);
	a->flow = flow;
	a->found++;
	for (int i = 0; i < 16; i++)
		a->name[i] = name[i];
	a->policy = index_of(sk);
	a->known = s != 0;
	a->kind = s ? s->kind : 0;
	a->chosen = chosen(sk, s);
	a->in_cgroup = in_cgroup(sk);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What burst has learned of the path between two addresses, kept for the next connection between them. A new connection pays for what is not known of its path with round trips, and most
 * connections are over before it pays off. One that finds its handshake as quick as that of the connection which left word takes up half of what that one knew, until its own first train tells
 * (the conditions are those of draft-ietf-tsvwg-careful-resume: recent, the same round trip, half, paced, given up for what is measured). As a round trip with a queue in it is not the same,
 * what others keep busy is left alone; and one connection at a time tries, for several that begin together would each take the whole.
 */
#ifndef PLAIT_PATH_H
#define PLAIT_PATH_H

#include "cc/burst.h"

#define PATH_REMEMBERED_NS (300 * 1000000000ULL)
/* Whoever tries and ends without a burst is waited for no longer than this. */
#define PATH_TRIES_NS (10 * 1000000000ULL)
#define PATH_SHARE 2

struct path_ends {
	__u32 local[4];
	__u32 remote[4];
	__u32 netns;
};

struct path {
	__u64 capacity_Bps;
	__u64 learned_ns;
	__u64 tried_ns; /* since when a new connection tries it; 0: none does */
	__u32 handshake_us; /* the round trip of the handshake of the connection that has learned it, */
	__u32 min_rtt_us;   /* and its shortest one with data */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct path_ends);
	__type(value, struct path);
} plait_paths SEC(".maps");

static __always_inline void path_ends(struct sock *sk, struct path_ends *e)
{
	local_of(sk, e->local);
	remote_of(sk, e->remote);
	e->netns = sk->__sk_common.skc_net.net->ns.inum;
}

/* Before the first data of a connection: whether it begins with what is known of its path. */
static __noinline int path_resume(struct sock *sk, struct plait_sock *s)
{
	struct burst *b = (struct burst *)s->private;
	__u64 now = bpf_ktime_get_ns(), tried;
	struct path_ends e = {};
	struct path *p;
	__u32 differs_us;

	if (!sk)
		return 0;
	s->handshake_us = srtt_us(tcp_sk(sk));
	path_ends(sk, &e);
	p = bpf_map_lookup_elem(&plait_paths, &e);
	if (!p || now - p->learned_ns > PATH_REMEMBERED_NS)
		return 0;
	differs_us = max(s->handshake_us, p->handshake_us) - min(s->handshake_us, p->handshake_us);
	if (!s->handshake_us || differs_us > max(p->handshake_us >> BURST_QUEUE_SHIFT, (__u32)BURST_QUEUE_MIN_US))
		return 0;
	tried = p->tried_ns;
	if ((tried && now - tried < PATH_TRIES_NS) || __sync_val_compare_and_swap(&p->tried_ns, tried, now) != tried)
		return 0;
	s->min_rtt_us = p->min_rtt_us;
	s->min_rtt_since_us = now / 1000;
	b->capacity_Bps = p->capacity_Bps / PATH_SHARE;
	b->lent = 1;
	b->tried_ns = now;
	sk->sk_pacing_rate = min(b->capacity_Bps, (__u64)sk->sk_max_pacing_rate);
	count(resumed);
	return 0;
}

/* When a burst is over, or another algorithm goes on: what it has found out is for the next connection. */
static __noinline int path_learn(struct sock *sk, struct plait_sock *s)
{
	const struct burst *b = (const struct burst *)s->private;
	struct path fresh = { .learned_ns = bpf_ktime_get_ns() };
	struct path_ends e = {};
	struct path *p;

	if (!sk || !s->handshake_us || !b->capacity_Bps)
		return 0;
	path_ends(sk, &e);
	p = bpf_map_lookup_elem(&plait_paths, &e);
	if (b->lent) { /* nothing new; but it tries no more */
		if (p && p->tried_ns == b->tried_ns)
			p->tried_ns = 0;
		return 0;
	}
	if (p && p->tried_ns != b->tried_ns)
		fresh.tried_ns = p->tried_ns;
	fresh.capacity_Bps = b->capacity_Bps;
	fresh.handshake_us = s->handshake_us;
	fresh.min_rtt_us = min_rtt_us(s);
	bpf_map_update_elem(&plait_paths, &e, &fresh, BPF_ANY);
	return 0;
}

#endif

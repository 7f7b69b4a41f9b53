/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which policy a socket is under: rules by local port, destination prefix and cgroup, and what was given back. */
#ifndef PLAIT_RULES_H
#define PLAIT_RULES_H

#include "sock.h"
#include "cgroup.h"

struct prefix_key {
	__u32 bits;
	__u8 address[16]; /* IPv4 as mapped address */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} plait_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix_key);
	__type(value, __u32);
} plait_prefixes SEC(".maps");

/* By the cgroup's id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u32);
} plait_cgroups SEC(".maps");

/* What was given back to the system's default, because plait was slower. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct plait_prefix);
	__type(value, __u32);
} plait_reverted SEC(".maps");

/* The peer's address; IPv4 as mapped address. */
static __always_inline void remote_of(struct sock *sk, __u32 address[4])
{
	if (sk->__sk_common.skc_family == AF_INET6) {
		for (int i = 0; i < 4; i++)
			address[i] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[i];
		return;
	}
	address[0] = address[1] = 0;
	address[2] = bpf_htonl(0xffff);
	address[3] = sk->__sk_common.skc_daddr;
}

/* The destination prefix connections are compared in: IPv4 /24, IPv6 /48. */
static __always_inline void prefix_of(struct sock *sk, struct plait_prefix *p)
{
	__u32 *a = (__u32 *)p->address;

	remote_of(sk, a);
	if (!a[0] && !a[1] && a[2] == bpf_htonl(0xffff)) {
		a[3] &= bpf_htonl(0xffffff00);
		return;
	}
	a[1] &= bpf_htonl(0xffff0000);
	a[2] = a[3] = 0;
}

/* Whether the socket is of plait's cgroup or one below. */
static __always_inline bool in_cgroup(struct sock *sk)
{
	struct cgroup *c = sk->sk_cgrp_data.cgroup;

	for (int i = 0; i < PLAIT_CGROUP_LEVELS && c; i++) {
		if (c->kn->id == plait_daemon.cgroup)
			return true;
		c = parent_of(c);
	}
	return false;
}

/* The index of the socket's policy. */
static __always_inline __u32 index_of(struct sock *sk)
{
	struct prefix_key key = { .bits = 128 };
	__u32 port = sk->__sk_common.skc_num, *found;

	found = bpf_map_lookup_elem(&plait_ports, &port);
	if (found)
		return *found;
	remote_of(sk, (__u32 *)key.address);
	found = bpf_map_lookup_elem(&plait_prefixes, &key);
	if (found && *found) /* 0: IPv4, inside an IPv6 prefix of which it is no part */
		return *found;
	return plait_daemon.cgroup_rules ? nearest(&plait_cgroups, sk) : 0; /* most hosts have none, and no way to walk */
}

/* The socket's policy, or none if plait has nothing to do with it. */
static __always_inline struct plait_policy *policy_of(struct sock *sk, __u32 *index)
{
	struct plait_prefix prefix = {};
	struct plait_policy *p;

	*index = index_of(sk);
	p = bpf_map_lookup_elem(&plait_policies, index);
	if (!p || (!p->managed && !p->observed))
		return 0;
	prefix_of(sk, &prefix);
	prefix.policy = *index;
	return bpf_map_lookup_elem(&plait_reverted, &prefix) ? 0 : p;
}

static __always_inline bool outdated(const struct plait_sock *s)
{
	return s->generation != plait_daemon.generation;
}

/*
 * The lot of a connection: whether it is held out. It is drawn again whenever rules may have changed, and is the same for the same share; of a larger share all are that are of
 * a smaller one. So with another share only as many change sides as must, and both groups have old connections and new ones alike, or what is compared would be these.
 */
static __always_inline bool is_held_out(const struct plait_sock *s, const struct plait_policy *p)
{
	__u64 lot = s->cookie ^ plait_daemon.key; /* cookies are counted: MurmurHash3's last step, in which each bit of them decides over all */

	lot = (lot ^ lot >> 33) * 0xff51afd7ed558ccdULL;
	lot = (lot ^ lot >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return (lot ^ lot >> 33) % 1000000 < p->holdout_ppm;
}

/*
 * Rules may have changed: puts the socket under the policy it has now, and says whether plait goes on with it as before. One that is managed and is to be held out
 * is when the caller has given it back; one that is held out and is to be managed is of no group until a pass takes it.
 */
static __noinline int revise(struct sock *sk, struct plait_sock *s)
{
	struct plait_policy *p;
	__u32 index;

	if (!sk)
		return 0;
	s->generation = plait_daemon.generation; /* before looking: what changes meanwhile is seen the next time */
	p = policy_of(sk, &index);
	s->policy = index; /* also of one that stays only because its application asked: the old index may be none any more */
	if (s->asked)
		return 1;
	if (!p || (s->kind == SOCK_MANAGED && !p->managed) || (s->kind == SOCK_OBSERVED && !p->observed)) {
		s->kind = 0;
		return 0;
	}
	if (!p->managed || is_held_out(s, p) == (s->kind == SOCK_HOLDOUT))
		return 1;
	if (s->kind == SOCK_MANAGED)
		count(held_out);
	s->kind = s->kind == SOCK_MANAGED ? SOCK_HOLDOUT : 0;
	return 0;
}

#endif

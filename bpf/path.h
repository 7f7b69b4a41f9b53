/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What burst has learned of the path between two addresses: for the next connection between them, and for those that send at the same time.
 *
 * A new connection pays for what is not known of its path with round trips, and most connections are over before it pays off. One whose handshake is as quick as that of the connection which
 * left word takes half of what that one knew for its bursts, until its own first train tells (the conditions are those of draft-ietf-tsvwg-careful-resume: recent, the same round trip, half,
 * paced, given up for what is measured). A round trip with a queue in it is not the same. One connection at a time tries, for several that begin together would each take the whole.
 *
 * Those with a burst on the way at the same time share what the path has (burst_share()). Where several that began at once have overrun its queue, those that begin later do so with few packets (burst_start()).
 */
#ifndef PLAIT_PATH_H
#define PLAIT_PATH_H

#include "cc/burst.h"

#define PATH_REMEMBERED_NS (300 * 1000000000ULL)
/* Whoever tries and ends without a burst is waited for no longer than this. */
#define PATH_TRIES_NS (10 * 1000000000ULL)
#define PATH_SHARE 2
/* Timeouts in a row after which another says that the peer is gone, and not that the path is full. */
#define PATH_GONE 2
/* So many losses, and such a part of all that a new connection has sent, say that too many began at once; after so many bursts alone in a row a crowd is expected no more. */
#define PATH_OVERRUN 5
#define PATH_OVERRUN_PART 4
/* Two do within this time: one alone may have a bad link of its own, behind the same address. */
#define PATH_TOGETHER_NS 1000000000ULL
#define PATH_ALONE 3

static __always_inline __u32 path_noise_us(__u32 rtt_us)
{
	return max(rtt_us >> BURST_QUEUE_SHIFT, (__u32)BURST_QUEUE_MIN_US);
}

struct path {
	__u64 capacity_Bps; /* 0: not known */
	__u64 learned_ns;
	__u64 tried_ns; /* since when a new connection tries it; 0: none does */
	__u64 begun_ns; /* when a burst last began */
	__u32 handshake_us; /* the round trip of the handshake of the connection that has learned it */
	__s32 bursting; /* how many are on the way */
	__u32 delivered; /* packets of all of them */
	__u32 crowd; /* how many at once have overrun the queue before they knew the path; 0: none */
	__u32 crowd_handshake_us; /* theirs */
	__u32 alone; /* bursts since, in a row, that were alone */
	__u64 crowd_ns; /* when they did */
	__u64 overran_ns; /* when one last did */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct path_ends);
	__type(value, struct path);
} plait_paths SEC(".maps");

static __always_inline struct path *path_at(const struct path_ends *e)
{
	struct path *p = bpf_map_lookup_elem(&plait_paths, e), fresh = {};

	if (p)
		return p;
	bpf_map_update_elem(&plait_paths, e, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&plait_paths, e);
}

static __always_inline void path_ends(struct sock *sk, struct path_ends *e)
{
	local_of(sk, e->local);
	remote_of(sk, e->remote);
	e->netns = sk->__sk_common.skc_net.net->ns.inum;
}

/* What another CPU has just put down may be later than now. */
static __always_inline bool path_past(__u64 now, __u64 since, __u64 ns)
{
	return (__s64)(now - since) > (__s64)ns;
}

/* How many are to be expected on a path where a handshake takes as long. */
static __always_inline __u32 path_crowd(const struct path *p, const struct plait_sock *s, __u64 now)
{
	__u32 least_us = min(s->handshake_us, p->crowd_handshake_us), differs_us = max(s->handshake_us, p->crowd_handshake_us) - least_us;

	if (!p->crowd || p->alone >= PATH_ALONE || path_past(now, p->crowd_ns, PATH_REMEMBERED_NS) || differs_us > path_noise_us(least_us))
		return 0;
	return p->crowd;
}

/* A timeout is no such sign: it may have been for nothing, or nobody may be there. */
static __always_inline bool path_overruns(struct sock *sk, const struct burst *b)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return !b->overran && b->lent && b->sharing > 1 && ca_state(sk) == TCP_CA_Recovery && tp->lost >= PATH_OVERRUN && tp->lost >= tp->data_segs_out / PATH_OVERRUN_PART;
}

static __always_inline void path_overrun(struct path *p, const struct plait_sock *s, struct burst *b, __u64 now)
{
	__u64 before = p->overran_ns;

	b->overran = 1;
	p->overran_ns = now;
	if (!before || path_past(now, before, PATH_TOGETHER_NS))
		return;
	p->crowd = path_past(now, p->crowd_ns, PATH_TOGETHER_NS) ? b->sharing : max(p->crowd, b->sharing);
	p->crowd_ns = now;
	p->crowd_handshake_us = s->handshake_us;
	p->alone = 0;
}

/*
 * Whether a burst of a connection that has no train of its own yet may begin with a rate that is known, and nobody else tries it. The first ten packets go at once, those of a crowd two by two, and what follows waits
 * for as long as these take at that rate: if that is more than a round trip, its own train tells before.
 */
static __always_inline bool path_lends(struct path *p, const struct plait_sock *s, __u64 rate_Bps, __u32 crowd, __u32 mss, __u64 now)
{
	__u64 least_bytes = (crowd ? 2ULL : BURST_TRAIN_PACKETS) * mss;
	__u32 differs_us = max(s->handshake_us, p->handshake_us) - min(s->handshake_us, p->handshake_us);
	__u64 tried = p->tried_ns;

	if (path_past(now, p->learned_ns, PATH_REMEMBERED_NS) || differs_us > path_noise_us(p->handshake_us) || rate_Bps * s->handshake_us < least_bytes * USEC_PER_SEC)
		return false;
	return crowd || ((!tried || path_past(now, tried, PATH_TRIES_NS)) && __sync_val_compare_and_swap(&p->tried_ns, tried, now) == tried);
}

static __always_inline void path_lend(struct sock *sk, struct path *p, struct plait_sock *s, __u64 now)
{
	struct burst *b = (struct burst *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);
	__u64 rate_Bps = b->crowd ? p->capacity_Bps : p->capacity_Bps / PATH_SHARE;

	if (!path_lends(p, s, rate_Bps, b->crowd, tp->mss_cache, now)) {
		if (b->capacity_Bps) /* it was lent for a burst before */
			tp->snd_cwnd = min(tp->snd_cwnd, initial_window(s));
		b->capacity_Bps = 0;
		return;
	}
	if (b->lent != BURST_LENT)
		count(resumed);
	b->lent = BURST_LENT;
	b->tried_ns = now;
	b->capacity_Bps = rate_Bps;
}

/* Others wait for no less: what goes as one train at once takes no share, but of a crowd. After a timeout nobody knows whether the peer is still there: what is written then waits for an ACK. */
static __always_inline bool path_joins(struct sock *sk, const struct plait_sock *s)
{
	const struct burst *b = (const struct burst *)s->private;
	const struct tcp_sock *tp = tcp_sk(sk);

	__u32 waits = tp->write_seq - tp->snd_una;

	if (b->among || tp->snd_wnd < tp->mss_cache || ca_state(sk) == TCP_CA_Loss)
		return false;
	return waits > BURST_TRAIN_PACKETS * tp->mss_cache || (b->crowd && waits && !only_fin(sk));
}

/* A burst is one of those on the way. */
static __noinline int path_begins(struct sock *sk, struct plait_sock *s)
{
	struct burst *b = (struct burst *)s->private;
	__u64 now = bpf_ktime_get_ns();
	struct path *p;
	struct path_ends e = {};

	if (!sk)
		return 0;
	path_ends(sk, &e);
	p = path_at(&e);
	if (!p)
		return 0;
	if (p->bursting < 0 || path_past(now, p->begun_ns, PATH_TRIES_NS)) /* the entry is another one than that of some who have ended, or of some who have not */
		p->bursting = 0;
	p->begun_ns = now;
	__sync_fetch_and_add(&p->bursting, 1);
	b->sharing = max(p->bursting, 1);
	b->shared = b->sharing > 1;
	b->crowd = path_crowd(p, s, now);
	b->among = 1;
	b->ends = e;
	b->own_at = tcp_sk(sk)->delivered;
	b->all_at = p->delivered;
	if (b->lent)
		path_lend(sk, p, s, now);
	return 0;
}

/* It is over, or waits for what is no matter of the path: a peer that has no room, or is gone. */
static __noinline int path_leave(struct sock *sk, struct plait_sock *s, bool over)
{
	struct burst *b = (struct burst *)s->private;
	struct path_ends e = b->ends;
	struct path *p;

	if (!sk || !b->among)
		return 0;
	b->among = 0;
	b->sharing = 1;
	p = bpf_map_lookup_elem(&plait_paths, &e);
	if (!p)
		return 0;
	__sync_fetch_and_add(&p->bursting, -1);
	if (b->shared)
		p->alone = 0;
	else if (over)
		p->alone++;
	if (b->tried_ns && p->tried_ns == b->tried_ns)
		p->tried_ns = 0;
	b->tried_ns = 0;
	return 0;
}

/*
 * On every ACK of a burst. Trains of several come through in turns, each as fast as the path takes it, or mixed, each as slowly as its share: what came through for all of
 * them while one did is the path's capacity either way.
 */
static __noinline int path_delivers(struct sock *sk, struct plait_sock *s, __u32 packets)
{
	struct burst *b = (struct burst *)s->private;
	struct path_ends e = b->ends;
	const struct tcp_sock *tp;
	__u32 own, all;
	struct path *p;

	if (!sk)
		return 0;
	tp = tcp_sk(sk);
	b->seen_Bps = s->dispersion_Bps;
	if (!b->among)
		return 0;
	p = bpf_map_lookup_elem(&plait_paths, &e);
	if (!p) {
		b->sharing = 1;
		return 0;
	}
	__sync_fetch_and_add(&p->delivered, packets);
	b->sharing = max(p->bursting, 1);
	b->shared |= b->sharing > 1;
	if (path_overruns(sk, b))
		path_overrun(p, s, b, bpf_ktime_get_ns());
	own = tp->delivered - b->own_at;
	all = p->delivered - b->all_at;
	if (s->train_measured && own && all > own)
		b->seen_Bps = s->dispersion_Bps * min((__u64)all, (__u64)own * b->sharing) / own;
	if (s->train_start_us == tp->tcp_mstamp) {
		b->own_at = tp->delivered;
		b->all_at = p->delivered;
	}
	return 0;
}

/* Before the first data of a connection whose handshake lost nothing. */
static __noinline int path_resume(struct sock *sk, struct plait_sock *s)
{
	struct burst *b = (struct burst *)s->private;
	struct path_ends e = {};
	struct path *p;

	if (!sk)
		return 0;
	s->handshake_us = srtt_us(tcp_sk(sk));
	if (!s->handshake_us)
		return 0;
	b->lent = BURST_MAY_LEND;
	path_ends(sk, &e);
	p = bpf_map_lookup_elem(&plait_paths, &e);
	if (p)
		b->crowd = path_crowd(p, s, bpf_ktime_get_ns());
	return 0;
}

/* When a burst is over, or another algorithm goes on: what a train of it has found out is for the next connection. */
static __noinline int path_learn(struct sock *sk, struct plait_sock *s)
{
	struct burst *b = (struct burst *)s->private;
	struct path *p;
	struct path_ends e = {};

	if (!sk)
		return 0;
	if (b->sharing > 1 && b->capacity_Bps) /* the next one may be alone */
		sk->sk_pacing_rate = min(b->capacity_Bps, (__u64)sk->sk_max_pacing_rate);
	path_leave(sk, s, true);
	if (!s->trains || b->lent || !b->capacity_Bps || !s->handshake_us)
		return 0;
	if (s->handshake_us > min_rtt_us(s) + path_noise_us(min_rtt_us(s))) /* it met a queue, and who meets one again should not take that for the path */
		return 0;
	path_ends(sk, &e);
	p = path_at(&e);
	if (!p)
		return 0;
	p->capacity_Bps = min(b->capacity_Bps, b->best_Bps);
	p->handshake_us = s->handshake_us;
	p->learned_ns = bpf_ktime_get_ns();
	return 0;
}

#endif

//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tcx: the TCP flows that leave through an exit, inside SRv6 or not, with what their sockets measure; and a timer for each that says when what it
 * sends is answered no more. No packet is changed.
 */
#include "kernel.h"
#include "packet.h"
#include "flows.h"
#include "cgroup.h"
#include "transfer.h"

#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_MSEC 1000000ULL
/* Less than this may have been lost by chance: TCP itself repeats its last segment after two round trips (RFC 8985 section 7.2). */
#define MANY_BYTES 20000
/* An answer to a single segment may wait this long at the peer: the delayed ACK of Linux. */
#define DELAYED_ACK_NS (40 * NSEC_PER_MSEC)
/* A single segment is sent again this much later than several: Linux allows for other peers' delayed ACKs (tcp_schedule_loss_probe). */
#define ONE_SEGMENT_BYTES 1500
#define ONE_SEGMENT_NS (200 * NSEC_PER_MSEC)
/* No less slack than this, for timers and queues of the peer. */
#define SLACK_NS (10 * NSEC_PER_MSEC)

struct flow {
	struct plait_flow_stats stats;
	struct bpf_timer timer;
};

/* Which addresses of this host are watched. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct plait_source);
	__type(value, __u8);
} plait_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct plait_flow_key);
	__type(value, struct flow);
} plait_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
	__type(value, struct plait_flow_event);
} plait_flow_events SEC(".maps");

/* Numbers of rules, by the cgroup's id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u32);
} plait_exit_cgroups SEC(".maps");

static __always_inline __u64 patience_ns(const struct plait_flow_stats *s)
{
	__u64 rtt = s->srtt_us * NSEC_PER_USEC, slack = max(s->mdev_us * NSEC_PER_USEC, SLACK_NS);

	if (!s->srtt_us)
		return 1000 * NSEC_PER_MSEC; /* TCP's own first timeout (RFC 6298) */
	if (s->next - s->acked >= MANY_BYTES)
		return rtt + slack;
	if (s->next - s->acked <= ONE_SEGMENT_BYTES)
		slack += ONE_SEGMENT_NS;
	return 3 * rtt + slack + DELAYED_ACK_NS;
}

static __always_inline void tell(const struct plait_flow_key *key, bool stalled)
{
	struct plait_flow_event *e = bpf_ringbuf_reserve(&plait_flow_events, sizeof(*e), 0);

	if (!e)
		return;
	e->key = *key;
	e->stalled = stalled;
	bpf_ringbuf_submit(e, 0);
}

static __always_inline void arm(struct flow *f, __u64 ns)
{
	f->stats.armed = 1;
	if (bpf_timer_start(&f->timer, ns, 0))
		f->stats.armed = 0;
}

static int expired(void *map, struct plait_flow_key *key, struct flow *f)
{
	struct plait_flow_stats *s = &f->stats;
	__u64 since, now, waited, patience;

	__sync_lock_test_and_set(&s->armed, 0); /* first: what is sent from now on arms again */
	since = s->unanswered_at_ns;
	if (!since || s->stalled_at_ns)
		return 0;
	now = bpf_ktime_get_ns();
	waited = now - since;
	patience = patience_ns(s);
	if (waited < patience) {
		arm(f, patience - waited);
		return 0;
	}
	s->stalled_at_ns = now;
	s->stalls++;
	tell(key, true);
	return 0;
}

static __always_inline struct flow *flow_of(const struct plait_flow_key *key, struct tcp_sock *tp, struct mptcp_sock *msk)
{
	struct flow *f = bpf_map_lookup_elem(&plait_flows, key);
	struct flow none = {};

	if (f)
		return f;
	none.stats.rule = nearest(&plait_exit_cgroups, (struct sock *)tp);
	if (msk)
		none.stats.token = msk->token;
	if (bpf_map_update_elem(&plait_flows, key, &none, BPF_NOEXIST))
		return 0;
	f = bpf_map_lookup_elem(&plait_flows, key);
	if (!f)
		return 0;
	if (bpf_timer_init(&f->timer, &plait_flows, CLOCK_MONOTONIC)) {
		bpf_map_delete_elem(&plait_flows, key);
		return 0;
	}
	bpf_timer_set_callback(&f->timer, expired);
	return f;
}

SEC("tcx/egress")
int plait_flow_sent(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct plait_flow_stats *s;
	struct mptcp_sock *msk;
	struct segment seg;
	struct tcp_sock *tp;
	struct flow *f;
	__u64 now;

	if (!sk || !parse(skb, &seg, true) || !bpf_map_lookup_elem(&plait_sources, seg.key.local))
		return TCX_NEXT;
	if (seg.flags & TCP_FLAG_SYN)
		bpf_map_delete_elem(&plait_flows, &seg.key); /* of a connection before this one */
	if (seg.flags & TCP_FLAG_SYN)
		return TCX_NEXT;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return TCX_NEXT;
	msk = bpf_skc_to_mptcp_sock(sk);
	/* A subflow that carries nothing yet has a round-trip time already, of its handshake: its first packet is the last ACK of that. */
	if (!seg.payload && !msk)
		return TCX_NEXT;
	f = flow_of(&seg.key, tp, msk);
	if (!f)
		return TCX_NEXT;
	s = &f->stats;
	s->acked_bytes = tp->bytes_acked;
	s->sent_segments = tp->data_segs_out;
	s->retransmitted_segments = tp->total_retrans;
	s->srtt_us = tp->srtt_us >> 3;
	s->mdev_us = tp->mdev_us;
	if (!seg.payload)
		return TCX_NEXT;
	now = bpf_ktime_get_ns();
	if (msk)
		transfer_sent(s->token, msk, now);
	if (!s->sent_bytes)
		s->acked = s->next = seg.sequence;
	if ((__s32)(seg.sequence + seg.payload - s->next) > 0)
		s->next = seg.sequence + seg.payload;
	__sync_fetch_and_add(&s->sent_bytes, seg.payload);
	if (!s->unanswered_at_ns)
		s->unanswered_at_ns = now;
	if (!s->armed && !s->stalled_at_ns)
		arm(f, patience_ns(s));
	return TCX_NEXT;
}

SEC("tcx/ingress")
int plait_flow_heard(struct __sk_buff *skb)
{
	struct plait_flow_stats *s;
	struct segment seg;
	struct flow *f;
	__s32 ahead;

	if (!parse(skb, &seg, false) || seg.flags & TCP_FLAG_RST)
		return TCX_NEXT;
	f = bpf_map_lookup_elem(&plait_flows, &seg.key);
	if (!f)
		return TCX_NEXT;
	s = &f->stats;
	if (s->token)
		transfer_heard(skb, &seg, s->token, bpf_ktime_get_ns());
	/* The peer's own data proves nothing about the way there; an ACK without data answers something, be it out of order. */
	ahead = seg.acknowledged - s->acked;
	if (ahead < 0 || (seg.payload && !ahead))
		return TCX_NEXT;
	s->acked = seg.acknowledged;
	s->heard_at_ns = bpf_ktime_get_ns();
	s->unanswered_at_ns = (__s32)(s->next - s->acked) > 0 ? s->heard_at_ns : 0; /* the ACK of a FIN is beyond next */
	if (s->stalled_at_ns) {
		s->stalled_at_ns = 0;
		tell(&seg.key, false);
	}
	if (s->unanswered_at_ns && !s->armed)
		arm(f, patience_ns(s));
	return TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";

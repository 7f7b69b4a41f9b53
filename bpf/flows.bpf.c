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
#define NSEC_PER_SEC 1000000000ULL
/* Less than this may have been lost by chance: TCP itself repeats its last segment after two round trips (RFC 8985 section 7.2). */
#define MANY_BYTES 20000
/* Less waits for pacing as well; MPTCP gives a flow as much at a time (MPTCP_SEND_BURST_SIZE in net/mptcp/protocol.c). */
#define WAITING_BYTES 65536
/* An answer to a single segment may wait this long at the peer: the delayed ACK of Linux. */
#define DELAYED_ACK_NS (40 * NSEC_PER_MSEC)
/* A single segment is sent again this much later than several: Linux allows for other peers' delayed ACKs (tcp_schedule_loss_probe). */
#define ONE_SEGMENT_BYTES 1500
#define ONE_SEGMENT_NS (200 * NSEC_PER_MSEC)
/* TCP's timer runs out a round trip and this much after what it waits for, at the least (TCP_RTO_MIN). */
#define TIMER_NS (200 * NSEC_PER_MSEC)
/* No less slack than this, for timers and queues of the peer. */
#define SLACK_NS (10 * NSEC_PER_MSEC)

/* A flow is slow when its round trips are so many times as long as the shortest, and so much longer: a queue has grown, or its link does less than it did. */
#define SLOW_TIMES 2
#define SLOW_NS (30 * NSEC_PER_MSEC)
/* While it is, this is said again: after so long at first, then after twice as long each time. */
#define SLOW_AGAIN_NS (200 * NSEC_PER_MSEC)
/* Data that has waited to be sent for so long needs the flow, slow as it is. */
#define NEEDS_NS (500 * NSEC_PER_MSEC)
/* Where some of a connection's has always waited for so long, the path is the limit. A stream that one of its exits has begun to fail waits for less: until the others' congestion controls have found out that they may send twice as fast. */
#define DOWNLOAD_NS (2 * NSEC_PER_SEC)

/* Data of an MPTCP connection, by its sequence numbers. */
struct mapping {
	__u32 from;
	__u32 bytes;
};

struct flow {
	struct plait_flow_stats stats;
	struct mapping first; /* that was sent, or sent again, as the first on the way */
	struct mapping last; /* that was sent when no more of the flow waited */
	__u64 began_at_ns; /* to be known */
	__u32 pushed; /* the MPTCP connection's snd_nxt when the flow last sent data */
	__u32 sent_before; /* segments, before that */
	__u32 retransmitted_before;
	__u32 timed; /* sequence number behind the packet whose answer is timed */
	__u32 peer_next; /* sequence number that was expected of the peer when the flow last sent */
	__u32 pad;
	__u64 slow_told_ns; /* when it was last said; 0: not since the flow was quick */
	__u64 slow_again_ns; /* when it is to be said again */
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

/* Numbers of cgroups, by their ids. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u32);
} plait_exit_cgroups SEC(".maps");

static __always_inline __u64 patience_ns(const struct plait_flow_stats *s)
{
	__u64 rtt = s->srtt_us * NSEC_PER_USEC, slack = max(max(s->mdev_us * NSEC_PER_USEC, rtt / 2), SLACK_NS);

	if (!s->srtt_us)
		return 1000 * NSEC_PER_MSEC; /* TCP's own first timeout (RFC 6298) */
	if (s->next - s->acked >= MANY_BYTES)
		return rtt + slack;
	if (s->next - s->acked <= ONE_SEGMENT_BYTES)
		slack += ONE_SEGMENT_NS;
	return 3 * rtt + slack + DELAYED_ACK_NS;
}

/* After so long TCP has repeated the byte that is missing, and an answer to that would be here (RFC 8985); half a round trip later and some more it is believed. */
static __always_inline __u64 held_patience_ns(const struct plait_flow_stats *s)
{
	__u64 rtt = s->srtt_us * NSEC_PER_USEC;

	return 2 * rtt + rtt / 2 + max(s->mdev_us * NSEC_PER_USEC, SLACK_NS);
}

static __always_inline bool tell(const struct plait_flow_key *key, enum plait_flow_news news)
{
	struct plait_flow_event *e = bpf_ringbuf_reserve(&plait_flow_events, sizeof(*e), 0);

	if (!e)
		return false;
	e->key = *key;
	e->news = news;
	bpf_ringbuf_submit(e, 0);
	return true;
}

/* What was sent since the last answer is overdue, or in how long it will be; 0: never. */
static __always_inline __u64 look_stalled(struct plait_flow_key *key, struct plait_flow_stats *s, __u64 now)
{
	__u64 since = s->asked_at_ns, due = since + patience_ns(s);

	if (!since || s->stalled_at_ns)
		return 0;
	if (now < due)
		return due - now;
	s->stalled_at_ns = now;
	if (s->asked_at_ns != since) { /* an answer came meanwhile, on another CPU */
		s->stalled_at_ns = 0;
		return 0;
	}
	if (!tell(key, PLAIT_FLOW_STALLED)) { /* too many at once: the daemon's look finds it, as one without a timer */
		s->armed = PLAIT_FLOW_REFUSED;
		s->stalled_at_ns = 0;
		return 0;
	}
	s->stalls++;
	return 0;
}

static __always_inline bool in(const struct mapping *m, __u32 sequence)
{
	return sequence - m->from < m->bytes;
}

/*
 * Whether the flow looks alive: an ACK came since its first byte on the way was sent. For several segments it must be one since that byte was the first, which says that others arrive; a single one has nothing behind it.
 * What a dead way holds is left to look_stalled, for closing one flow of it would hide that.
 */
static __always_inline bool alive(const struct plait_flow_stats *s)
{
	return s->heard_at_ns > s->first_at_ns || (s->heard_at_ns == s->first_at_ns && s->next - s->acked <= ONE_SEGMENT_BYTES);
}

/*
 * The same for a flow that holds its connection up: it has the next byte that the peer expects of all its subflows, and the peer has said so, on any of them, later than an answer to that byte was due, if it was not lost.
 * A second look must find the same: after a pause of the client's radio answers come by the shortest way first. Not where TCP's own timer is as soon. Nor where the path is the limit, as in a download: all that the connection
 * has sent since would be sent again, which takes as long as the byte has been missing.
 */
static __always_inline __u64 look_stuck(struct plait_flow_key *key, struct flow *f, __u64 now)
{
	struct plait_flow_stats *s = &f->stats;
	__u64 rtt = s->srtt_us * NSEC_PER_USEC, patience = held_patience_ns(s), first = s->first_at_ns, due, answer = first + rtt + rtt / 2;
	struct connection *c;

	if (!s->token || !rtt || patience >= rtt + TIMER_NS || !first || s->stuck_at_ns || now > first + NSEC_PER_SEC)
		return 0;
	c = bpf_map_lookup_elem(&plait_connections, &s->token);
	if (!c || !c->began_ns || (c->behind_at_ns && now > c->behind_at_ns + DOWNLOAD_NS))
		return 0;
	due = max(c->moved_at_ns + patience, answer);
	if (now < due)
		return due - now;
	if ((!in(&f->first, c->acked) && !in(&f->last, c->acked)) || c->said_at_ns < answer || s->stalled_at_ns || !alive(s)) {
		s->doubted_at_ns = 0;
		return max(rtt / 2, SLACK_NS);
	}
	if (s->doubted_at_ns <= c->moved_at_ns) /* never, or for another byte */
		s->doubted_at_ns = now;
	due = s->doubted_at_ns + rtt / 2 + SLACK_NS;
	if (now < due)
		return due - now;
	s->stuck_at_ns = now;
	if (s->first_at_ns != first || !tell(key, PLAIT_FLOW_STUCK)) /* an answer came meanwhile, on another CPU; or too many are told at once */
		s->stuck_at_ns = 0;
	return 0;
}

static int expired(void *map, struct plait_flow_key *key, struct flow *f)
{
	struct plait_flow_stats *s = &f->stats;
	__u64 now, stalled, stuck, next;

	__sync_lock_test_and_set(&s->armed, PLAIT_FLOW_UNARMED); /* first: what is sent from now on arms again */
	now = bpf_ktime_get_ns();
	stalled = look_stalled(key, s, now);
	stuck = look_stuck(key, f, now);
	if (!stalled && stuck)
		stalled = patience_ns(s); /* of what is sent from now on */
	next = stuck ? min(stalled, stuck) : stalled;
	if (!next || s->armed == PLAIT_FLOW_REFUSED)
		return 0;
	s->armed = PLAIT_FLOW_ARMED;
	if (bpf_timer_start(&f->timer, next, 0))
		s->armed = PLAIT_FLOW_UNARMED;
	return 0;
}

/*
 * A timer needs memory, which kernels since about 6.17 get without waiting for a lock (__bpf_async_init in kernel/bpf/helpers.c), or refuse: Linux 6.18 was
 * seen to. To try costs 0.4 us, so it is tried again with the first packet after an answer, not with every one.
 */
static __always_inline void arm(struct flow *f, __u64 ns)
{
	f->stats.armed = PLAIT_FLOW_ARMED;
	if (!bpf_timer_start(&f->timer, ns, 0))
		return;
	if (bpf_timer_init(&f->timer, &plait_flows, CLOCK_MONOTONIC) || bpf_timer_set_callback(&f->timer, expired) || bpf_timer_start(&f->timer, ns, 0))
		f->stats.armed = PLAIT_FLOW_REFUSED;
}

/*
 * An answer came. It tells the round-trip time, if it is to the packet that is timed; if that one is late, what is sent now will be as well. Few bytes on the way tell nothing, for answers to them may be delayed.
 */
static __always_inline void time_heard(const struct plait_flow_key *key, struct flow *f, __u64 now)
{
	struct plait_flow_stats *s = &f->stats;
	__u64 least = s->least_rtt_us * NSEC_PER_USEC, timed = s->timed_at_ns, rtt = now - timed;
	bool many = s->next - s->acked >= MANY_BYTES, timed_is_back = (__s32)(s->acked - f->timed) >= 0;

	if (!timed)
		return;
	if (timed_is_back) {
		s->rtt_us = rtt / NSEC_PER_USEC;
		s->timed_at_ns = 0;
	}
	if (!many || !least || rtt < max(SLOW_TIMES * least, least + SLOW_NS)) {
		if (timed_is_back)
			f->slow_told_ns = 0;
		return;
	}
	if (!s->token || (f->slow_told_ns && now < f->slow_again_ns) || (s->waiting_at_ns && now > s->waiting_at_ns + NEEDS_NS))
		return;
	f->slow_again_ns = now + (f->slow_told_ns ? 2 * (now - f->slow_told_ns) : SLOW_AGAIN_NS);
	f->slow_told_ns = now;
	tell(key, PLAIT_FLOW_SLOW);
}

/* A flow that is new, if its address is watched. */
static __always_inline struct flow *begin(struct __sk_buff *skb, const struct segment *seg, struct tcp_sock *tp, struct mptcp_sock *msk)
{
	struct flow none = {};

	if (!bpf_map_lookup_elem(&plait_sources, seg->key.local))
		return 0;
	none.stats.rule = nearest(&plait_exit_cgroups, (struct sock *)tp);
	if (msk)
		none.stats.token = msk->token;
	none.stats.acked = tp->snd_una;
	none.stats.next = tp->snd_nxt; /* of new data its sequence number; what is sent again has more behind it */
	none.began_at_ns = bpf_ktime_get_ns();
	none.sent_before = tp->data_segs_out - (seg->payload ? max(skb->gso_segs, 1) : 0);
	none.retransmitted_before = tp->total_retrans;
	if (bpf_map_update_elem(&plait_flows, &seg->key, &none, BPF_NOEXIST))
		return 0;
	return bpf_map_lookup_elem(&plait_flows, &seg->key);
}

/*
 * The peer has everything up to a sequence number. A FIN has one, too, and is no byte. Other CPUs may hear ACKs of the same flow at the same time, of which
 * each byte counts once; what is left out when they win again and again counts with the next ACK.
 */
static __always_inline void acknowledge(struct plait_flow_stats *s, __u32 upto, __u64 now)
{
	for (int i = 0; i < 8; i++) {
		__u32 before = *(volatile __u32 *)&s->acked;
		__s32 bytes = min((__s32)(upto - before), (__s32)(s->next - before));

		if ((__s32)(upto - before) <= 0)
			return;
		if (__sync_val_compare_and_swap(&s->acked, before, upto) == before) {
			if (bytes > 0)
				__sync_fetch_and_add(&s->acked_bytes, bytes);
			s->first_at_ns = (__s32)(s->next - upto) > 0 ? now : 0; /* the ACK of a FIN is beyond next */
			s->doubted_at_ns = s->stuck_at_ns = 0;
			return;
		}
	}
}

/*
 * What was sent up to a sequence number is answered. What was on the way may be lost in one go, to a queue shorter than a burst. So patience begins with what is sent from now on; at the latest that is
 * TCP's probe.
 */
static __always_inline void answered(struct plait_flow_key *key, struct plait_flow_stats *s, __u32 upto, __u64 now)
{
	acknowledge(s, upto, now);
	s->heard_at_ns = now;
	s->asked_at_ns = 0;
	s->unanswered_at_ns = (__s32)(s->next - s->acked) > 0 ? now : 0; /* the ACK of a FIN is beyond next */
	if (s->stalled_at_ns) {
		s->stalled_at_ns = 0;
		tell(key, PLAIT_FLOW_HEARD);
	}
}

/* Data waits in the socket of the flow, or in that of its MPTCP connection, which has not said yet by which flow it goes. */
static __always_inline void waits(struct plait_flow_stats *s, struct tcp_sock *tp, struct mptcp_sock *msk, __u64 now)
{
	__u64 bytes = (__u32)(tp->write_seq - s->next);

	if (msk)
		bytes += msk->write_seq - msk->snd_nxt;
	if (bytes < WAITING_BYTES)
		s->waiting_at_ns = 0;
	else if (!s->waiting_at_ns)
		s->waiting_at_ns = now;
}

/* Its socket is locked: no other CPU sends on the same flow. */
SEC("tcx/egress")
int plait_flow_sent(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct plait_flow_stats *s;
	struct mptcp_sock *msk;
	struct segment seg;
	struct tcp_sock *tp;
	__u64 now, wait;
	struct flow *f;
	struct dss d;
	bool first;

	if (!sk || !parse(skb, &seg, true))
		return TCX_NEXT;
	if (seg.flags & TCP_FLAG_SYN) {
		bpf_map_delete_elem(&plait_flows, &seg.key); /* of a connection before this one */
		return TCX_NEXT;
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return TCX_NEXT;
	msk = bpf_skc_to_mptcp_sock(sk);
	/* A subflow that carries nothing yet has a round-trip time already, of its handshake: its first packet is the last ACK of that. */
	if (!seg.payload && !msk)
		return TCX_NEXT;
	f = bpf_map_lookup_elem(&plait_flows, &seg.key);
	if (!f)
		f = begin(skb, &seg, tp, msk);
	if (!f)
		return TCX_NEXT;
	s = &f->stats;
	s->sent_segments = tp->data_segs_out - f->sent_before;
	s->retransmitted_segments = tp->total_retrans - f->retransmitted_before;
	s->srtt_us = tp->srtt_us >> 3;
	s->mdev_us = tp->mdev_us;
	s->least_rtt_us = tp->rtt_min.s[0].v;
	f->peer_next = tp->rcv_nxt;
	now = tp->tcp_clock_cache; /* TCP has just read the clock to send */
	if ((__s32)(s->acked - tp->snd_nxt) > 0) /* by an ACK of what was never sent: the socket did not believe it */
		s->acked = tp->snd_una;
	if ((__s32)(tp->snd_una - s->acked) > 0) /* the ACK has come by another interface */
		answered(&seg.key, s, tp->snd_una, now);
	if (!seg.payload)
		return TCX_NEXT;
	if (msk && (__u32)msk->snd_nxt != f->pushed) {
		f->pushed = msk->snd_nxt;
		transfer_sent(s->token, msk, now);
	}
	first = (__s32)(seg.sequence - s->acked) <= 0;
	if (msk && (first || seg.sequence + seg.payload == tp->write_seq)) { /* of one between, those behind it tell TCP */
		data_sequence(skb, &seg, &d);
		f->last = (struct mapping){ d.from, d.bytes };
		if (first)
			f->first = f->last;
	}
	if ((__s32)(seg.sequence + seg.payload - s->next) > 0) {
		s->next = seg.sequence + seg.payload;
		waits(s, tp, msk, now);
		if (!s->timed_at_ns) {
			f->timed = s->next;
			s->timed_at_ns = now;
		}
	} else {
		s->timed_at_ns = 0; /* the timed packet is sent again, or may be: the answer does not tell which it is to */
	}
	if (!s->first_at_ns && (__s32)(s->next - s->acked) > 0) /* else it repeats what has arrived meanwhile */
		s->first_at_ns = now;
	if (!s->asked_at_ns) {
		s->asked_at_ns = now;
		if (!s->unanswered_at_ns)
			s->unanswered_at_ns = s->asked_at_ns;
		if (s->armed == PLAIT_FLOW_REFUSED)
			s->armed = PLAIT_FLOW_UNARMED;
	}
	if (s->armed == PLAIT_FLOW_UNARMED && !s->stalled_at_ns) {
		wait = patience_ns(s);
		arm(f, s->token && s->srtt_us ? min(wait, held_patience_ns(s)) : wait);
	}
	return TCX_NEXT;
}

SEC("tcx/ingress")
int plait_flow_heard(struct __sk_buff *skb)
{
	struct plait_flow_stats *s;
	struct segment seg;
	struct flow *f;
	__s32 ahead;
	__u64 now;

	if (!parse(skb, &seg, false) || seg.flags & (TCP_FLAG_SYN | TCP_FLAG_RST))
		return TCX_NEXT;
	f = bpf_map_lookup_elem(&plait_flows, &seg.key);
	if (!f)
		return TCX_NEXT;
	s = &f->stats;
	now = bpf_ktime_get_ns();
	if (s->token)
		transfer_heard(skb, &seg, s->token, now);
	/*
	 * The peer's own data, and its end, prove nothing about the way there; an ACK without data answers something, be it out of order, if it is none by which the peer keeps the
	 * connection alive: that has a sequence number of before.
	 */
	ahead = seg.acknowledged - s->acked;
	if (ahead < 0 || (!ahead && (seg.payload || seg.flags & TCP_FLAG_FIN || (__s32)(seg.sequence - f->peer_next) < 0)))
		return TCX_NEXT;
	answered(&seg.key, s, seg.acknowledged, now);
	if (ahead)
		time_heard(&seg.key, f, now);
	else
		s->timed_at_ns = 0; /* something is missing, and how long that takes is no round trip */
	return TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";

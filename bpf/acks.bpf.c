//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tcx: pure ACKs of slow MPTCP subflows leave twice, natively and as a copy over a quicker link, in a tunnel of UDP (receiver); copies become what they
 * are copies of, and the time by which they are sooner is measured (sender). Native ACKs go as ever: what is late is old to TCP, and dropped (PAWS, RFC 7323
 * section 5). What PAWS cannot tell is the twin of the last ACK for now: a duplicate ACK that its receiver did not send. TCP would take it for the answer to a segment sent
 * twice, and a tail that was lost for none (tcp_process_tlp_ack; RFC 8985 section 7.4.2). It is dropped here, when the socket has what it acknowledges from its copy alone.
 * Nor can it tell twins that acknowledge nothing new (the exception in tcp_disordered_ack): one that says that something came twice (RFC 2883) would say so twice. Those that
 * say what is missing go on: it is no news twice, and of an ACK whose copy was lost it is news.
 */
#include "kernel.h"
#include "packet.h"
#include "acks.h"
#include "says.h"
#include "tunnel.h"

#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_SEC 1000000000ULL
/* A twin that has not come within this time is lost, and another copy is timed. */
#define TWIN_LOST_NS (5000000000ULL)
/* What a filter takes of copies shows only in those that the socket is given. Where it took one, leads of copies that are only timed are not believed for as long. */
#define FILTERED_NS (30000000000ULL)
/*
 * Of a flow that rests a copy goes as often as this; and all of them for some time after a loss, or after a pause, for then the sender's window may grow. If that was in vain, not
 * again for longer: on a link that loses packets all the time there is always a loss.
 */
#define REST_NS (50000000ULL)
#define AWAKE_NS (5000000000ULL)
#define WAKE_AGAIN_NS (30000000000ULL)
#define PAUSE_NS (1000000000ULL)
/*
 * So many copies go at once, and then one in so long: of more a window grows no sooner, but at 200 Mbit/s, say, they would be 8 Mbit/s. A thousand a second, of 88 to 156 bytes, are about one.
 */
#define AT_ONCE 64
#define EACH_NS (1000000ULL)

enum { BPF_MAP_TYPE_PERCPU_ARRAY = 6 };
enum { TCX_DROP = 2, AF_INET = 2 };
#define BPF_F_CURRENT_NETNS (-1L)

/* include/uapi/linux/bpf.h */
struct bpf_redir_neigh {
	__u32 nh_family;
	__u8 nh[16];
};

struct bpf_sock_tuple {
	union {
		struct {
			__be32 saddr;
			__be32 daddr;
			__be16 sport;
			__be16 dport;
		} ipv4;
		struct {
			__u8 saddr[16];
			__u8 daddr[16];
			__be16 sport;
			__be16 dport;
		} ipv6;
	};
};

struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port;
	__be16 dst_port;
	__u32 dst_ip4;
	__u32 dst_ip6[4];
	__u32 state;
};

struct bpf_tcp_sock { /* its first fields */
	__u32 snd_cwnd;
	__u32 srtt_us;
	__u32 rtt_min;
	__u32 snd_ssthresh;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
};

volatile const __u16 plait_ack_port; /* where copies come in; host order */
__u32 plait_ack_any;		     /* whether there is any flow to look for */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct plait_flow_key);
	__type(value, struct plait_ack_route);
} plait_ack_routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct plait_ack_name);
	__type(value, struct plait_flow_key);
} plait_ack_names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct plait_flow_key);
	__type(value, struct plait_ack_lead);
} plait_ack_flows SEC(".maps");

/* Shared with the congestion control. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct plait_ack_native);
} plait_ack_natives SEC(".maps");

/* Whether this CPU sends a native ACK now, which must not be copied again. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} plait_ack_sending SEC(".maps");

/* Whether an ACK of this flow is copied now. */
static __always_inline bool is_due(struct __sk_buff *skb, const struct segment *seg, struct plait_ack_route *r, int kind)
{
	__u64 now = bpf_ktime_get_ns();

	if ((has_sack(skb, seg) || now - r->seen_at_ns > PAUSE_NS) && (!r->rests || r->useful || now - r->woken_at_ns > WAKE_AGAIN_NS)) {
		r->woken_at_ns = now;
		r->useful = !r->rests;
	}
	r->seen_at_ns = now;
	if (r->rests && kind != SIGNAL_ACK && now - r->woken_at_ns > AWAKE_NS && now - r->copied_at_ns < REST_NS)
		return false;
	r->paid_until_ns = max(r->paid_until_ns, now);
	if (kind != SIGNAL_ACK && r->paid_until_ns - now >= AT_ONCE * EACH_NS)
		return false;
	r->paid_until_ns = min(r->paid_until_ns, now + AT_ONCE * EACH_NS) + EACH_NS;
	r->copied_at_ns = now;
	return true;
}

/*
 * Whether a packet is one to copy: by its own link, not by what that lies on (of a VLAN or bridge), where a native ACK that had to wait comes by itself; and with no more headers than
 * the sender takes (copy_heard()).
 */
static __always_inline bool is_copied(const struct __sk_buff *skb, const struct segment *seg, const struct plait_ack_route *r)
{
	return skb->ifindex == r->slow && r->slow != r->ifindex && seg->options == (skb->protocol == bpf_htons(ETH_P_IP) ? 40 : 60);
}

/*
 * The native ACK goes as a clone, whose way is known already; the packet itself becomes the copy, for which the kernel looks up the neighbour. It takes an Ethernet header
 * off (__bpf_redirect_neigh in net/core/filter.c) and drops what has none: links like PPP, LTE and tunnels send without one.
 */
SEC("tcx/egress")
int plait_ack_sent(struct __sk_buff *skb)
{
	struct bpf_redir_neigh to = {};
	struct plait_ack_route *r;
	struct segment seg;
	__u32 zero = 0, network, bytes, tsval, *sending;
	bool four;
	int kind;

	if (!plait_ack_any || !parse(skb, &seg, true) || seg.payload)
		return TCX_NEXT;
	r = bpf_map_lookup_elem(&plait_ack_routes, &seg.key);
	sending = bpf_map_lookup_elem(&plait_ack_sending, &zero);
	if (!r || !sending || *sending || !is_copied(skb, &seg, r) || !(kind = ack_kind(skb, &seg, &tsval)) || !is_due(skb, &seg, r, kind))
		return TCX_NEXT;
	network = network_offset(skb);
	if (network && network != ETHERNET_BYTES)
		return TCX_NEXT;
	bytes = skb->len - network;
	*sending = 1;
	if (bpf_clone_redirect(skb, skb->ifindex, 0) < 0) {
		*sending = 0;
		return TCX_NEXT;
	}
	*sending = 0;
	if (!network && bpf_skb_change_head(skb, ETHERNET_BYTES, 0))
		return TCX_DROP; /* the copy alone, as below */
	network = ETHERNET_BYTES;
	four = is_mapped(r->destination);
	if (four ? wrap4(skb, r, network, bytes) : wrap6(skb, r, network, bytes))
		return TCX_DROP;
	__sync_fetch_and_add(&r->copies, 1);
	to.nh_family = four ? AF_INET : AF_INET6;
	if (four)
		__builtin_memcpy(to.nh, r->next_hop + 12, 4);
	else
		__builtin_memcpy(to.nh, r->next_hop, 16);
	return bpf_redirect_neigh(r->ifindex, &to, sizeof(to), 0);
}

/* The flow's socket, to be released, or 0. A server's listener, which is found where it is gone or bound to another interface, is not it. */
static __always_inline struct bpf_sock *socket_of(struct __sk_buff *skb, const struct plait_flow_key *key)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	__u32 size = sizeof(tuple.ipv6);

	if (is_mapped(key->local)) {
		__builtin_memcpy(&tuple.ipv4.saddr, key->remote + 12, 4);
		__builtin_memcpy(&tuple.ipv4.daddr, key->local + 12, 4);
		tuple.ipv4.sport = bpf_htons(key->remote_port);
		tuple.ipv4.dport = bpf_htons(key->local_port);
		size = sizeof(tuple.ipv4);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, key->remote, 16);
		__builtin_memcpy(tuple.ipv6.daddr, key->local, 16);
		tuple.ipv6.sport = bpf_htons(key->remote_port);
		tuple.ipv6.dport = bpf_htons(key->local_port);
	}
	sk = bpf_sk_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk || sk->state != TCP_LISTEN)
		return sk;
	bpf_sk_release(sk);
	return 0;
}

#define FAR_AHEAD 0x7fffffff

/* By how many bytes the flow's socket is ahead of an ACK; negative: it is news to it. Without a socket it is far ahead. */
static __always_inline __s32 ahead_of(struct __sk_buff *skb, const struct plait_flow_key *key, __u32 ack)
{
	struct bpf_sock *sk = socket_of(skb, key);
	struct bpf_tcp_sock *tp;
	__s32 ahead = FAR_AHEAD;

	if (!sk)
		return ahead;
	tp = bpf_tcp_sock(sk);
	if (tp)
		ahead = tp->snd_una - ack;
	bpf_sk_release(sk);
	return ahead;
}

/*
 * Whether a timestamp can be one of the clock the socket knows, which ticks once a microsecond at the most (usually once a millisecond). Some firewalls change the timestamps of what
 * passes them, as natives do and copies do not. From a copy of the future TCP would learn to take all that comes natively for old, data as well, and the subflow would be dead.
 */
static __always_inline bool is_of_its_clock(struct bpf_sock *sk, __u32 tsval)
{
	const struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	__u32 ahead, since_s;

	if (!tp)
		return false;
	ahead = tsval - tp->rx_opt.ts_recent;
	since_s = (__u32)(bpf_ktime_get_ns() / NSEC_PER_SEC) - tp->rx_opt.ts_recent_stamp;
	return (__s32)ahead < 0 || ahead / 1000000 <= since_s + 1;
}

/* The first copies are in use. Twins of three samples may get lost, but copies whose lead is never known are not corrected for. */
static __always_inline bool opened(const struct plait_ack_lead *l, __u64 now)
{
	return l->opened_s && (__s32)((__u32)(now / NSEC_PER_SEC) - l->opened_s) <= (__s32)(3 * TWIN_LOST_NS / NSEC_PER_SEC); /* another CPU may be a second ahead */
}

/*
 * Whether the flow's socket is to have a copy now: as its congestion control says. Until the first lead is measured that knows of none, and copies are for slow start, in
 * which a shorter round trip costs nobody anything, and on until it knows, but not for long: an end of copies is a time without ACKs. Negative: this interface leads to no such socket, or it must not
 * have this one.
 */
static __always_inline int wanted(struct __sk_buff *skb, const struct plait_flow_key *key, const struct plait_ack_lead *l, __u32 tsval, __u64 now)
{
	struct bpf_sock *sk = socket_of(skb, key);
	struct plait_ack_native *n;
	struct bpf_tcp_sock *tp;
	bool want = true;

	if (!sk)
		return -1;
	if (!is_of_its_clock(sk, tsval)) {
		bpf_sk_release(sk);
		return -1;
	}
	n = bpf_sk_storage_get(&plait_ack_natives, sk, 0, 0);
	if (n) {
		n->copied_us = now / NSEC_PER_USEC;
		want = !n->closed;
	} else {
		tp = bpf_tcp_sock(sk);
		if (tp)
			want = l->opened_s ? opened(l, now) : tp->snd_cwnd < tp->snd_ssthresh;
	}
	bpf_sk_release(sk);
	return want;
}

/* Tells the congestion control. */
static __always_inline void publish(struct __sk_buff *skb, const struct plait_flow_key *key, const struct plait_ack_lead *l, __u64 now)
{
	struct plait_ack_native first = { .closed = !opened(l, now) }, *n;
	struct bpf_sock *sk = socket_of(skb, key);

	if (!sk)
		return;
	n = bpf_sk_storage_get(&plait_ack_natives, sk, &first, BPF_SK_STORAGE_GET_F_CREATE);
	if (n) {
		n->lead_us = l->lead_us;
		n->at_us = now / NSEC_PER_USEC;
	}
	bpf_sk_release(sk);
}

static __always_inline void measured(struct __sk_buff *skb, const struct plait_flow_key *key, struct plait_ack_lead *l, __u32 us, __u64 now)
{
	l->lead_us = l->leads ? l->lead_us + ((__s32)(us - l->lead_us) >> 3) : us;
	__sync_fetch_and_add(&l->leads, 1);
	publish(skb, key, l, now);
}

static __always_inline bool is_older(__u32 ack, __u32 tsval, __u32 ack2, __u32 tsval2)
{
	return tsval == tsval2 ? (__s32)(ack - ack2) < 0 : (__s32)(tsval - tsval2) < 0;
}

static __always_inline int native_heard(struct __sk_buff *skb, const struct segment *seg)
{
	struct plait_ack_lead *l = bpf_map_lookup_elem(&plait_ack_flows, &seg->key);
	int verdict = TCX_NEXT;
	__u64 now, then;
	__u32 tsval;
	__s32 ahead;

	if (!l || !ack_kind(skb, seg, &tsval))
		return TCX_NEXT;
	__sync_fetch_and_add(&l->natives, 1);
	l->native_ack = seg->acknowledged;
	l->native_tsval = tsval;
	if (l->copied_tsval && (__s32)(seg->acknowledged - l->copied_ack) > 0) /* while copies are closed out more is acknowledged than two numbers can be told apart by */
		l->copied_tsval = l->twin_awaited = 0;
	if (l->twin_awaited && tsval == l->copied_tsval && seg->acknowledged == l->copied_ack && l->twin_awaited == 1 + has_sack(skb, seg)) {
		l->twin_awaited = 0;
		ahead = ahead_of(skb, &seg->key, seg->acknowledged);
		if (!ahead || ahead == FAR_AHEAD) /* the copy was the last ACK of all, and has closed the socket: TCP would answer with a reset */
			verdict = TCX_DROP;
	} else if (l->used_tsval && !is_older(l->used_ack, l->used_tsval, seg->acknowledged, tsval) && has_dsack(skb, seg) &&
		   ahead_of(skb, &seg->key, seg->acknowledged) >= 0) {
		verdict = TCX_DROP;
	}
	then = l->sampled_at_ns;
	if (!then || is_older(seg->acknowledged, tsval, l->sampled_ack, l->sampled_tsval))
		return verdict;
	now = bpf_ktime_get_ns(); /* after reading then, which another CPU may write */
	l->sampled_at_ns = 0;
	if (tsval != l->sampled_tsval || seg->acknowledged != l->sampled_ack)
		return verdict;
	/* The copy was in time for the socket, too, and not taken by a filter behind this program (rp_filter). */
	if (l->sampled_used) {
		l->filtered_at_ns = ahead_of(skb, &seg->key, seg->acknowledged) < 0 ? now : 0;
		if (l->filtered_at_ns)
			then = now;
	} else if (l->filtered_at_ns && (__s64)(now - l->filtered_at_ns) < (__s64)FILTERED_NS) {
		return verdict;
	}
	measured(skb, &seg->key, l, (now - then) / NSEC_PER_USEC, bpf_ktime_get_ns());
	return verdict;
}

static __always_inline bool same(const struct plait_flow_key *a, const struct plait_flow_key *b)
{
	const __u32 *x = (const __u32 *)a, *y = (const __u32 *)b;

	for (int i = 0; i < sizeof(*a) / 4; i++)
		if (x[i] != y[i])
			return false;
	return true;
}

/* A copy in time tells of data that nothing before has told of: its twin will tell nothing more. Says whether this one does. */
static __always_inline bool await_twin(struct plait_ack_lead *l, __u32 ack, __u32 tsval, bool sack)
{
	if ((l->copied_tsval && (__s32)(ack - l->copied_ack) <= 0) || (l->natives && (__s32)(ack - l->native_ack) <= 0))
		return false;
	l->copied_ack = ack;
	l->copied_tsval = tsval;
	l->twin_awaited = 1 + sack;
	return true;
}

/* A packet whose tunnel has been taken off. Nothing but a pure ACK comes in, and only for the socket that the daemon has named. */
static __always_inline int copy_heard(struct __sk_buff *skb, const struct plait_flow_key *key)
{
	struct plait_ack_lead *l = bpf_map_lookup_elem(&plait_ack_flows, key);
	__u32 tsval, kind, headers = skb->protocol == bpf_htons(ETH_P_IP) ? 40 : 60;
	struct segment seg;
	__u64 now;
	bool used, news = false;
	int want;

	/* What has more headers, such as a source route, would not end at the socket. */
	if (!l || !parse(skb, &seg, false) || seg.options != headers || !(kind = ack_kind(skb, &seg, &tsval)))
		return TCX_DROP;
	if (!same(&seg.key, key) && readdress(skb, &seg.key, key, headers - sizeof(struct tcp_header)))
		return TCX_DROP;
	now = bpf_ktime_get_ns();
	__sync_fetch_and_add(&l->copies, 1);
	want = wanted(skb, key, l, tsval, now);
	if (want < 0) /* the socket is bound to another interface, or in a VRF: TCP would answer with a reset, which ends the flow */
		return TCX_DROP;
	if (l->natives && !is_older(l->native_ack, l->native_tsval, seg.acknowledged, tsval)) {
		__sync_fetch_and_add(&l->late, 1);
		measured(skb, key, l, 0, now);
		/* A duplicate, as a late twin is. A signal is sent at once, with the timestamp of the ACK before it, whose native twin has made it late. */
		return kind == SIGNAL_ACK ? TCX_NEXT : TCX_DROP;
	}
	used = kind == SIGNAL_ACK || want; /* when copies are let in next, a signal that is still on its native way would be old */
	if (used) {
		__sync_fetch_and_add(&l->used, 1);
		news = await_twin(l, seg.acknowledged, tsval, has_sack(skb, &seg));
	}
	if (want) {
		l->used_ack = seg.acknowledged;
		l->used_tsval = tsval;
		if (!l->opened_s)
			l->opened_s = max(now / NSEC_PER_SEC, 1ULL);
	} else if (tsval == l->used_tsval) {
		l->used_tsval--; /* the socket is to have this one's twin */
	}
	/* Of one that the socket was given only data that it acknowledges shows that it was not taken by a filter (native_heard()). */
	if ((!used || news) && (!l->sampled_at_ns || now - l->sampled_at_ns > TWIN_LOST_NS)) {
		l->sampled_ack = seg.acknowledged;
		l->sampled_tsval = tsval;
		l->sampled_used = used;
		l->sampled_at_ns = now;
	}
	return used ? TCX_NEXT : TCX_DROP;
}

/* Whether the packet is a copy of a size that fits, and which socket it is for; bytes is how long the tunnel's headers are. */
static __always_inline struct plait_flow_key *name_of(struct __sk_buff *skb, __u32 *bytes, __u64 *decapsulate)
{
	bool four = skb->protocol == bpf_htons(ETH_P_IP);
	struct plait_ack_name name = {};
	struct plait_ack_header ack;
	struct udp_header udp;
	__u8 ip[40], first;

	if (!four && skb->protocol != bpf_htons(ETH_P_IPV6))
		return 0;
	*bytes = four ? 20 : 40;
	if (!(four ? load(skb, 0, ip, 20) : load(skb, 0, ip, 40)) || ip[four ? 9 : 6] != IPPROTO_UDP)
		return 0;
	if (four && (ip[0] != 0x45 || (ip[6] & 0x3f) || ip[7]))
		return 0;
	if (four)
		mapped(name.from, ip + 12);
	else
		__builtin_memcpy(name.from, ip + 8, 16);
	if (!load(skb, *bytes, &udp, sizeof(udp)) || udp.destination != bpf_htons(plait_ack_port))
		return 0;
	*bytes += sizeof(udp);
	if (!load(skb, *bytes, &ack, sizeof(ack)) || ack.magic[0] != PLAIT_ACK_MAGIC0 || ack.magic[1] != PLAIT_ACK_MAGIC1)
		return 0;
	*bytes += sizeof(ack);
	if (!load(skb, *bytes, &first, 1) || (first >> 4 != 4 && first >> 4 != 6))
		return 0;
	*decapsulate = 0;
	if (four != (first >> 4 == 4))
		*decapsulate = four ? BPF_F_ADJ_ROOM_DECAP_L3_IPV6 : BPF_F_ADJ_ROOM_DECAP_L3_IPV4;
	name.token = bpf_ntohl(ack.token);
	name.id = ack.id;
	name.sender_id = ack.sender_id;
	return bpf_map_lookup_elem(&plait_ack_names, &name);
}

SEC("tcx/ingress")
int plait_ack_heard(struct __sk_buff *skb)
{
	struct plait_flow_key *found, key;
	struct segment seg;
	__u64 decapsulate;
	__u32 bytes;

	if (!plait_ack_any)
		return TCX_NEXT;
	found = name_of(skb, &bytes, &decapsulate);
	if (!found) {
		if (!parse(skb, &seg, false) || seg.payload)
			return TCX_NEXT;
		return native_heard(skb, &seg);
	}
	key = *found;
	if (bpf_skb_adjust_room(skb, -(__s32)bytes, BPF_ADJ_ROOM_MAC, decapsulate))
		return TCX_DROP;
	return copy_heard(skb, &key);
}

char _license[] SEC("license") = "Dual BSD/GPL";

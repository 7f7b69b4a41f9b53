/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How long an MPTCP connection takes for what it sends, over all its subflows: from the first packet after all was acknowledged until all is again,
 * by data sequence numbers (RFC 8684 section 3.3). Subflows by themselves do not tell: what one loses another may carry.
 */
#ifndef PLAIT_TRANSFER_H
#define PLAIT_TRANSFER_H

#include "packet.h"

/* Less says more of the round-trip time than of how fast data goes. */
#define TRANSFER_MIN_BYTES (128 << 10)
/* What does not end is told of in parts of this length, or of so many bytes, of which 32 bits hold some more. */
#define TRANSFER_PART_NS (2000 * 1000000ULL)
#define TRANSFER_PART_BYTES (1 << 30)

struct connection {
	__u64 began_ns; /* 0: nothing is on the way */
	__u64 moved_at_ns; /* since when the peer expects the same byte next, or since when anything is on the way */
	__u32 from;	/* low halves of data sequence numbers: the first byte on the way, */
	__u32 next;	/* behind the last, */
	__u32 acked;	/* and what the peer expects next */
	__u32 padding;
	__u64 behind_at_ns; /* since when something is left behind whenever a subflow is given more; 0: nothing was the last time */
	__u64 said_at_ns; /* when the peer last said so, on any subflow; 0: never, and this may be plain TCP by now */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32); /* token */
	__type(value, struct connection);
} plait_connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
	__type(value, struct plait_transfer);
} plait_transfers SEC(".maps");

static __always_inline void transfer_sent(__u32 token, struct mptcp_sock *msk, __u64 now)
{
	__u32 una = msk->snd_una, next = msk->snd_nxt;
	struct connection *c;

	if (una == next)
		return; /* a repetition of what has arrived by another way */
	c = bpf_map_lookup_elem(&plait_connections, &token);
	if (!c) {
		struct connection fresh = { .began_ns = now, .from = una, .next = next, .acked = una, .moved_at_ns = now, .behind_at_ns = msk->write_seq == msk->snd_nxt ? 0 : now };

		bpf_map_update_elem(&plait_connections, &token, &fresh, BPF_NOEXIST);
		return;
	}
	c->next = next;
	if (msk->write_seq == msk->snd_nxt)
		c->behind_at_ns = 0;
	else if (!c->began_ns || !c->behind_at_ns)
		c->behind_at_ns = now;
	if (!c->began_ns) {
		c->from = una;
		c->moved_at_ns = now;
		c->began_ns = now;
	}
}

/* What a segment's DSS option says (RFC 8684 section 3.3, figure 9): the low halves of the data acknowledgement, and of the data's sequence number. */
struct dss {
	__u32 ack;
	__u32 from;
	__u32 bytes; /* 0: no data is mapped */
	bool acks;
};

static __always_inline bool word(struct __sk_buff *skb, __u32 network, __u32 offset, __u32 *value)
{
	__be32 copy;
	const __be32 *p = at(skb, network, offset, &copy, sizeof(copy));

	if (!p)
		return false;
	*value = bpf_ntohl(*p);
	return true;
}

static __always_inline bool data_sequence(struct __sk_buff *skb, const struct segment *seg, struct dss *d)
{
	enum { ACK = 1, ACK_8 = 2, MAPS = 4, MAPS_8 = 8 };
	__u32 network = network_offset(skb), option = seg->options, end = option + seg->options_bytes, head;

	d->acks = false;
	d->from = d->bytes = 0;
	if (seg->options_bytes > 40)
		return false;
	for (int i = 0; i < 12 && option + 8 <= end; i++) {
		__u32 kind, size;

		option &= 0xfff; /* which it is anyway; the verifier loses count */
		if (!word(skb, network, option, &head))
			return false;
		kind = head >> 24;
		size = head >> 16 & 0xff;
		if (kind == 30 && (head >> 12 & 15) == 2) {
			option += 4;
			if (head & ACK) {
				d->acks = word(skb, network, option + (head & ACK_8 ? 4 : 0), &d->ack);
				option += head & ACK_8 ? 8 : 4;
			}
			if (head & MAPS) {
				option += head & MAPS_8 ? 4 : 0;
				/* behind the subflow's sequence number */
				if (word(skb, network, option + 8, &d->bytes) && word(skb, network, option, &d->from))
					d->bytes >>= 16;
				else
					d->bytes = 0;
			}
			return true;
		}
		if (kind == 0 || (kind != 1 && size < 2))
			return false;
		option += kind == 1 ? 1 : size;
	}
	return false;
}

static __always_inline void transfer_heard(struct __sk_buff *skb, const struct segment *seg, __u32 token, __u64 now)
{
	struct connection *c = bpf_map_lookup_elem(&plait_connections, &token);
	struct plait_transfer *t;
	__u64 began, took;
	__u32 ack, before, from;
	struct dss d;
	bool over;

	if (!c)
		return;
	began = c->began_ns;
	if (!began || !data_sequence(skb, seg, &d) || !d.acks)
		return;
	ack = d.ack;
	c->said_at_ns = now;
	before = c->acked;
	if ((__s32)(ack - before) > 0 && __sync_val_compare_and_swap(&c->acked, before, ack) == before) /* never back; else the next ACK says it */
		c->moved_at_ns = now;
	took = now - began;
	from = c->from;
	over = (__s32)(ack - c->next) >= 0;
	if (!over && ack - from < (took < TRANSFER_PART_NS ? TRANSFER_PART_BYTES : TRANSFER_MIN_BYTES))
		return; /* slow ones count as well, when there is enough of them */
	if (over)
		ack = c->next;
	/* Other subflows hear the same, on other CPUs: one of them tells. */
	if (__sync_val_compare_and_swap(&c->began_ns, began, over ? 0 : now) != began)
		return;
	c->from = ack;
	if (ack - from < TRANSFER_MIN_BYTES)
		return;
	t = bpf_ringbuf_reserve(&plait_transfers, sizeof(*t), 0);
	if (!t)
		return;
	t->key = seg->key;
	t->token = token;
	t->bytes = ack - from;
	t->us = took / 1000;
	bpf_ringbuf_submit(t, 0);
}

#endif

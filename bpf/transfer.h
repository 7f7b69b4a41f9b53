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
/* What does not end is told of in parts of this length. */
#define TRANSFER_PART_NS (2000 * 1000000ULL)

struct connection {
	__u64 began_ns; /* 0: nothing is on the way */
	__u64 moved_at_ns; /* since when the peer expects the same byte next, or since when anything is on the way */
	__u32 from;	/* low halves of data sequence numbers: the first byte on the way, */
	__u32 next;	/* behind the last, */
	__u32 acked;	/* and what the peer expects next */
	__u32 padding;
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
		struct connection fresh = { .began_ns = now, .from = una, .next = next, .acked = una, .moved_at_ns = now };

		bpf_map_update_elem(&plait_connections, &token, &fresh, BPF_NOEXIST);
		return;
	}
	c->next = next;
	if (!c->began_ns) {
		c->from = una;
		c->moved_at_ns = now;
		c->began_ns = now;
	}
}

/* The acknowledgement of data in a segment's DSS option (RFC 8684 section 3.3, figure 9), its low half. */
static __always_inline bool data_ack(struct __sk_buff *skb, const struct segment *seg, __u32 *ack)
{
	__u32 length = seg->options_bytes, at = 0, shown;
	__u8 o[128] = {};

	if (length < 1 || length > 40 || !load(skb, seg->options, o, length))
		return false;
	for (int i = 0; i < 20 && at + 8 <= length; i++) {
		__u8 *option = o + (at & 63), size = option[1];

		if (option[0] == 0)
			return false;
		if (option[0] == 1) { /* no operation */
			at++;
			continue;
		}
		if (option[0] == 30 && option[2] >> 4 == 2 && option[3] & 1) {
			__builtin_memcpy(&shown, option + (option[3] & 2 ? 8 : 4), 4);
			*ack = bpf_ntohl(shown);
			return true;
		}
		if (size < 2)
			return false;
		at += size;
	}
	return false;
}

/* Since when the peer expects the same byte of the connection; 0: nothing is on the way. */
static __always_inline __u64 held_since(__u32 token)
{
	struct connection *c = bpf_map_lookup_elem(&plait_connections, &token);

	return c && c->began_ns ? c->moved_at_ns : 0;
}

static __always_inline void transfer_heard(struct __sk_buff *skb, const struct segment *seg, __u32 token, __u64 now)
{
	struct connection *c = bpf_map_lookup_elem(&plait_connections, &token);
	struct plait_transfer *t;
	__u64 began, took;
	__u32 ack, from;
	bool over;

	if (!c)
		return;
	began = c->began_ns;
	if (!began || !data_ack(skb, seg, &ack))
		return;
	if ((__s32)(ack - c->acked) > 0) {
		c->acked = ack;
		c->moved_at_ns = now;
	}
	took = now - began;
	from = c->from;
	over = (__s32)(ack - c->next) >= 0;
	if (!over && (took < TRANSFER_PART_NS || ack - from < TRANSFER_MIN_BYTES))
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

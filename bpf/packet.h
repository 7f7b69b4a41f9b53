/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP segments of this host as they are on an interface: plain, or inside SRv6 with or without a segment routing header (RFC 8754, RFC 8986 section 5). */
#ifndef PLAIT_PACKET_H
#define PLAIT_PACKET_H

#include "kernel.h"
#include "flows.h"

enum { ETH_P_IP = 0x0800, ETH_P_IPV6 = 0x86DD };
enum { IPPROTO_HOPOPTS = 0, IPPROTO_IPIP = 4, IPPROTO_TCP = 6, IPPROTO_IPV6 = 41, IPPROTO_ROUTING = 43, IPPROTO_NONE = 59 };

enum { HOPOPTS_BYTES = 8 }; /* with the length of a jumbogram and nothing else (RFC 2675) */

struct ipv4_header {
	__u8 version_ihl;
	__u8 tos;
	__be16 total_length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__sum16 checksum;
	__u8 source[4];
	__u8 destination[4];
};

struct ipv6_header {
	__be32 version_class_label;
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	__u8 source[16];
	__u8 destination[16];
};

struct tcp_header {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledged;
	__u8 offset;
	__u8 flags;
	__be16 window;
	__sum16 checksum;
	__be16 urgent;
};

_Static_assert(sizeof(struct tcp_header) == 20, "options begin behind it");

enum { TCP_FLAG_FIN = 1, TCP_FLAG_SYN = 2, TCP_FLAG_RST = 4 };

struct segment {
	struct plait_flow_key key;
	__u32 sequence;
	__u32 acknowledged;
	__u32 payload; /* bytes */
	__u32 flags;
	__u32 options; /* where TCP's options are, from the network header on */
	__u32 options_bytes;
};

static __always_inline bool load(struct __sk_buff *skb, __u32 offset, void *to, __u32 size)
{
	return !bpf_skb_load_bytes_relative(skb, offset, to, size, BPF_HDR_START_NET);
}

extern void *bpf_cast_to_kern_ctx(void *obj) __ksym;

/* Where the network header is, from skb->data on: at both hooks that is the MAC header, if the device has any. */
static __always_inline __u32 network_offset(struct __sk_buff *skb)
{
	struct sk_buff *k = bpf_cast_to_kern_ctx(skb);

	return (k->network_header - k->mac_header) & 0xff;
}

/*
 * Size bytes of the packet, from an offset behind its network header on; 0 if it ends before. They are read where they are if they are in the packet's linear
 * part, as what this host sends is; otherwise they are copied.
 */
static __always_inline const void *at(struct __sk_buff *skb, __u32 network, __u32 offset, void *copy, __u32 size)
{
	void *p = (void *)(long)skb->data + network + offset;

	if (p + size <= (void *)(long)skb->data_end)
		return p;
	return load(skb, offset, copy, size) ? copy : 0;
}

static __always_inline void mapped(__u8 *to, const __u8 *ipv4)
{
	__builtin_memset(to, 0, 10);
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, ipv4, 4);
}

static __always_inline bool is_mapped(const __u8 *address)
{
	const __u32 *words = (const __u32 *)address;

	return !words[0] && !words[1] && words[2] == bpf_htonl(0xffff);
}

/* What the packet carries, and where that begins: itself, or what is inside SRv6. */
static __always_inline __u8 carried(struct __sk_buff *skb, __u32 network, __u32 *offset)
{
	struct ipv6_header outer;
	const struct ipv6_header *ip6;
	__u8 copy[2];
	const __u8 *routing;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		return IPPROTO_IPIP;
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || !(ip6 = at(skb, network, 0, &outer, sizeof(outer))))
		return IPPROTO_NONE;
	if (ip6->next_header == IPPROTO_TCP || ip6->next_header == IPPROTO_HOPOPTS)
		return IPPROTO_IPV6;
	*offset = sizeof(*ip6);
	if (ip6->next_header != IPPROTO_ROUTING)
		return ip6->next_header;
	if (!(routing = at(skb, network, *offset, copy, sizeof(copy))))
		return IPPROTO_NONE;
	*offset += (routing[1] + 1) * 8;
	return routing[0];
}

/*
 * Whether the packet is a TCP segment; local is this host's end of it. One of more than 64 KB (BIG TCP) says that it has none, and in IPv6, with
 * some kernels, has the header of a jumbogram: the kernel knows.
 */
static __always_inline bool parse(struct __sk_buff *skb, struct segment *seg, bool outgoing)
{
	__u8 *source = outgoing ? seg->key.local : seg->key.remote, *destination = outgoing ? seg->key.remote : seg->key.local;
	__u32 network = network_offset(skb), offset = 0;
	union {
		struct ipv4_header ip4;
		struct ipv6_header ip6;
		struct tcp_header tcp;
		__u8 extension[2];
	} copy;
	const struct ipv6_header *ip6;
	const struct ipv4_header *ip4;
	const struct tcp_header *tcp;
	const __u8 *extension;
	__s32 length;
	__u8 next;

	next = carried(skb, network, &offset);
	if (next == IPPROTO_IPV6) {
		ip6 = at(skb, network, offset, &copy, sizeof(*ip6));
		if (!ip6)
			return false;
		__builtin_memcpy(source, ip6->source, 16);
		__builtin_memcpy(destination, ip6->destination, 16);
		length = bpf_ntohs(ip6->payload_length);
		next = ip6->next_header;
		offset += sizeof(*ip6);
		if (next == IPPROTO_HOPOPTS && !length) {
			extension = at(skb, network, offset, &copy, sizeof(copy.extension));
			if (!extension || extension[1])
				return false;
			next = extension[0];
			offset += HOPOPTS_BYTES;
		}
		if (next != IPPROTO_TCP)
			return false;
		if (!length)
			length = skb->len - network - offset;
	} else {
		if (next != IPPROTO_IPIP || !(ip4 = at(skb, network, offset, &copy, sizeof(*ip4))) || ip4->protocol != IPPROTO_TCP ||
		    ip4->fragment & bpf_htons(0x1fff))
			return false;
		mapped(source, ip4->source);
		mapped(destination, ip4->destination);
		offset += (ip4->version_ihl & 15) * 4;
		length = ip4->total_length ? bpf_ntohs(ip4->total_length) - (ip4->version_ihl & 15) * 4 : skb->len - network - offset;
	}
	tcp = at(skb, network, offset, &copy, sizeof(*tcp));
	if (!tcp || length < (tcp->offset >> 4) * 4)
		return false;
	seg->key.local_port = bpf_ntohs(outgoing ? tcp->source : tcp->destination);
	seg->key.remote_port = bpf_ntohs(outgoing ? tcp->destination : tcp->source);
	seg->sequence = bpf_ntohl(tcp->sequence);
	seg->acknowledged = bpf_ntohl(tcp->acknowledged);
	seg->payload = length - (tcp->offset >> 4) * 4;
	seg->flags = tcp->flags;
	seg->options = offset + sizeof(*tcp);
	seg->options_bytes = (tcp->offset >> 4) * 4 - sizeof(*tcp);
	return true;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP segments of this host as they are on an interface: plain, or inside SRv6 with or without a segment routing header (RFC 8754, RFC 8986 section 5). */
#ifndef PLAIT_PACKET_H
#define PLAIT_PACKET_H

#include "kernel.h"
#include "flows.h"

enum { ETH_P_IP = 0x0800, ETH_P_IPV6 = 0x86DD };
enum { IPPROTO_IPIP = 4, IPPROTO_TCP = 6, IPPROTO_IPV6 = 41, IPPROTO_ROUTING = 43 };

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
};

enum { TCP_FLAG_SYN = 2, TCP_FLAG_RST = 4 };

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

static __always_inline void mapped(__u8 *to, const __u8 *ipv4)
{
	__builtin_memset(to, 0, 10);
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, ipv4, 4);
}

/* Where the IP header is that TCP stands behind, and of which version; 0 if there is none. */
static __always_inline int inner(struct __sk_buff *skb, struct ipv6_header *ip6, __u32 *offset)
{
	__u8 routing[2];
	__u32 next;

	*offset = 0;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return 4;
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || !load(skb, 0, ip6, sizeof(*ip6)))
		return 0;
	next = ip6->next_header;
	if (next == IPPROTO_TCP)
		return 6;
	*offset = sizeof(*ip6);
	if (next == IPPROTO_ROUTING) {
		if (!load(skb, *offset, routing, sizeof(routing)))
			return 0;
		next = routing[0];
		*offset += (routing[1] + 1) * 8;
	}
	if (next == IPPROTO_IPIP)
		return 4;
	if (next != IPPROTO_IPV6 || !load(skb, *offset, ip6, sizeof(*ip6)) || ip6->next_header != IPPROTO_TCP)
		return 0;
	return 6;
}

/* Whether the packet is a TCP segment; local is this host's end of it. */
static __always_inline bool parse(struct __sk_buff *skb, struct segment *seg, bool outgoing)
{
	__u8 *source = outgoing ? seg->key.local : seg->key.remote, *destination = outgoing ? seg->key.remote : seg->key.local;
	struct ipv6_header ip6;
	struct ipv4_header ip4;
	struct tcp_header tcp;
	__u32 offset, length;
	int version = inner(skb, &ip6, &offset);

	if (version == 6) {
		__builtin_memcpy(source, ip6.source, 16);
		__builtin_memcpy(destination, ip6.destination, 16);
		length = bpf_ntohs(ip6.payload_length);
		offset += sizeof(ip6);
	} else {
		if (version != 4 || !load(skb, offset, &ip4, sizeof(ip4)) || ip4.protocol != IPPROTO_TCP ||
		    ip4.fragment & bpf_htons(0x1fff))
			return false;
		mapped(source, ip4.source);
		mapped(destination, ip4.destination);
		length = bpf_ntohs(ip4.total_length) - (ip4.version_ihl & 15) * 4;
		offset += (ip4.version_ihl & 15) * 4;
	}
	if (!load(skb, offset, &tcp, sizeof(tcp)))
		return false;
	seg->key.local_port = bpf_ntohs(outgoing ? tcp.source : tcp.destination);
	seg->key.remote_port = bpf_ntohs(outgoing ? tcp.destination : tcp.source);
	seg->sequence = bpf_ntohl(tcp.sequence);
	seg->acknowledged = bpf_ntohl(tcp.acknowledged);
	if (length < (tcp.offset >> 4) * 4)
		return false; /* a jumbogram (BIG TCP) tells its length elsewhere */
	seg->payload = length - (tcp.offset >> 4) * 4;
	seg->flags = tcp.flags;
	seg->options = offset + sizeof(tcp);
	seg->options_bytes = (tcp.offset >> 4) * 4 - sizeof(tcp);
	return true;
}

#endif

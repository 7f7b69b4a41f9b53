/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tunnel of copied ACKs: IP, UDP, which socket the copy is for (acks.h), and the packet as it was. */
#ifndef PLAIT_TUNNEL_H
#define PLAIT_TUNNEL_H

#include "kernel.h"
#include "packet.h"
#include "acks.h"

#define ETHERNET_BYTES 14

enum { IPPROTO_UDP = 17 };
enum { BPF_ADJ_ROOM_MAC = 1 };
enum {
	BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 = 1 << 1,
	BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 = 1 << 2,
	BPF_F_ADJ_ROOM_ENCAP_L4_UDP = 1 << 4,
	BPF_F_ADJ_ROOM_NO_CSUM_RESET = 1 << 5,
	BPF_F_ADJ_ROOM_DECAP_L3_IPV4 = 1 << 7,
	BPF_F_ADJ_ROOM_DECAP_L3_IPV6 = 1 << 8,
};
enum { BPF_F_RECOMPUTE_CSUM = 1 << 0, BPF_F_PSEUDO_HDR = 1 << 4 };

struct udp_header {
	__be16 source;
	__be16 destination;
	__be16 length;
	__sum16 checksum; /* 0: none, over IPv4 (RFC 768). What is inside has its own, and a NAT in this kernel takes a checksum here for one that a device fills in */
};

struct tunnel4 {
	struct ipv4_header ip;
	struct udp_header udp;
	struct plait_ack_header ack;
};

struct tunnel6 {
	struct ipv6_header ip;
	struct udp_header udp;
	struct plait_ack_header ack;
};

static __always_inline __u16 ip_checksum(const struct ipv4_header *ip)
{
	const __u16 *words = (const __u16 *)ip;
	__u32 sum = 0;

	for (int i = 0; i < 10; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline void inner_headers(const struct plait_ack_route *r, struct udp_header *udp, struct plait_ack_header *ack, __u32 bytes)
{
	udp->source = bpf_htons(r->source_port);
	udp->destination = bpf_htons(r->destination_port);
	udp->length = bpf_htons(bytes + sizeof(*udp) + sizeof(*ack));
	ack->magic[0] = PLAIT_ACK_MAGIC0;
	ack->magic[1] = PLAIT_ACK_MAGIC1;
	ack->id = r->id;
	ack->sender_id = r->sender_id;
	ack->token = bpf_htonl(r->token);
}

/*
 * Over IPv6 firewalls drop UDP without a checksum (RFC 8200 section 8.1; RFC 6935 allows it for tunnels). A TCP segment sums up to the complement of its pseudo header, now
 * or when a device has filled in its checksum, and an IPv4 header to nothing.
 */
static __always_inline __sum16 udp6_checksum(struct __sk_buff *skb, struct tunnel6 *t, __u32 bytes)
{
	bool four = skb->protocol == bpf_htons(ETH_P_IP);
	__be32 inner[5], pseudo = bpf_htonl(bytes + sizeof(t->udp) + sizeof(t->ack) + IPPROTO_UDP);
	__be32 segment = bpf_htonl(bytes - (four ? sizeof(struct ipv4_header) : sizeof(struct ipv6_header)) + IPPROTO_TCP);
	__u32 sum;

	if (!load(skb, 0, inner, sizeof(inner)))
		return 0;
	sum = bpf_csum_diff(&segment, sizeof(segment), &pseudo, sizeof(pseudo), 0);
	sum = bpf_csum_diff(0, 0, (__be32 *)t->ip.source, sizeof(*t) - __builtin_offsetof(struct tunnel6, ip.source), sum);
	sum = four ? bpf_csum_diff(inner + 3, 8, 0, 0, sum) : bpf_csum_diff(0, 0, inner, 8, sum);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__sum16)~sum ?: 0xffff;
}

/* Puts the packet, an inner one of so many bytes, into the tunnel. */
static __always_inline long wrap4(struct __sk_buff *skb, const struct plait_ack_route *r, __u32 network, __u32 bytes)
{
	struct tunnel4 t = { .ip = { .version_ihl = 0x45, .fragment = bpf_htons(0x4000), .ttl = 64, .protocol = IPPROTO_UDP } };

	t.ip.total_length = bpf_htons(bytes + sizeof(t));
	__builtin_memcpy(t.ip.source, r->source + 12, 4);
	__builtin_memcpy(t.ip.destination, r->destination + 12, 4);
	t.ip.checksum = ip_checksum(&t.ip);
	inner_headers(r, &t.udp, &t.ack, bytes);
	return bpf_skb_adjust_room(skb, sizeof(t), BPF_ADJ_ROOM_MAC,
				   BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_NO_CSUM_RESET) ?:
		       bpf_skb_store_bytes(skb, network, &t, sizeof(t), 0);
}

static __always_inline long wrap6(struct __sk_buff *skb, const struct plait_ack_route *r, __u32 network, __u32 bytes)
{
	struct tunnel6 t = { .ip = { .version_class_label = bpf_htonl(0x60000000), .next_header = IPPROTO_UDP, .hop_limit = 64 } };

	t.ip.payload_length = bpf_htons(bytes + sizeof(t) - sizeof(t.ip));
	__builtin_memcpy(t.ip.source, r->source, 16);
	__builtin_memcpy(t.ip.destination, r->destination, 16);
	inner_headers(r, &t.udp, &t.ack, bytes);
	t.udp.checksum = udp6_checksum(skb, &t, bytes);
	return bpf_skb_adjust_room(skb, sizeof(t), BPF_ADJ_ROOM_MAC,
				   BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_NO_CSUM_RESET) ?:
		       bpf_skb_store_bytes(skb, network, &t, sizeof(t), 0);
}

/* Gives the packet the addresses and ports its socket knows, if a NAT has changed them on the native way. */
static __always_inline long readdress(struct __sk_buff *skb, const struct plait_flow_key *is, const struct plait_flow_key *shall, __u32 tcp)
{
	__u32 old[8] = {}, new[8] = {}, ports, new_ports, network = network_offset(skb);
	bool four = is_mapped(is->local);
	__s64 change;

	if (four != is_mapped(shall->local))
		return -1;
	if (four) {
		old[0] = *(__u32 *)(is->remote + 12);
		old[1] = *(__u32 *)(is->local + 12);
		new[0] = *(__u32 *)(shall->remote + 12);
		new[1] = *(__u32 *)(shall->local + 12);
	} else {
		__builtin_memcpy(old, is->remote, 16);
		__builtin_memcpy(old + 4, is->local, 16);
		__builtin_memcpy(new, shall->remote, 16);
		__builtin_memcpy(new + 4, shall->local, 16);
	}
	change = bpf_csum_diff((__be32 *)old, sizeof(old), (__be32 *)new, sizeof(new), 0);
	ports = bpf_htons(is->remote_port) | (__u32)bpf_htons(is->local_port) << 16;
	new_ports = bpf_htons(shall->remote_port) | (__u32)bpf_htons(shall->local_port) << 16;
	if (change < 0 || bpf_l4_csum_replace(skb, network + tcp + 16, 0, change, BPF_F_PSEUDO_HDR) ||
	    bpf_l4_csum_replace(skb, network + tcp + 16, ports, new_ports, 4) || bpf_skb_store_bytes(skb, network + tcp, &new_ports, 4, 0))
		return -1;
	if (four)
		return bpf_l3_csum_replace(skb, network + 10, 0, change, 0) ?: bpf_skb_store_bytes(skb, network + 12, new, 8, 0);
	/* An IPv6 header has no checksum that makes up for other addresses in what a device has summed up (CHECKSUM_COMPLETE). */
	return bpf_skb_store_bytes(skb, network + 8, new, 32, BPF_F_RECOMPUTE_CSUM);
}

#endif

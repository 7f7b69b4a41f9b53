/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What an ACK says in its options: whether it is to be copied, and what its twin must not say again. */
#ifndef PLAIT_SAYS_H
#define PLAIT_SAYS_H

#include "kernel.h"
#include "packet.h"

enum { TCP_FLAG_PSH = 8, TCP_FLAG_ACK = 16, TCP_FLAG_URG = 32 };
enum { MPTCP_CAPABLE, MPTCP_JOIN, MPTCP_DSS }; /* subtypes (RFC 8684 section 3) */
enum { NO_ACK, PURE_ACK, SIGNAL_ACK };

/*
 * The same value, of which the verifier then knows only that it is a number. It follows a loop anew for each value it knows of what the loop changes, by each way through
 * the iterations before.
 */
static __always_inline __u64 forgotten(__u64 value, __u64 any)
{
	asm volatile("%0 -= %1\n\t%0 += %1" : "+r"(value) : "r"(any));
	return value;
}

/*
 * Whether a segment without data is an ACK and nothing else, or one with MPTCP's signals of addresses and priorities; tsval is its timestamp. Signals are copied: behind
 * copies of later ACKs an ACK that was not copied is old to TCP, and what it says is dropped with it. They are allowed to come twice, as by retransmission. Its handshakes
 * are not.
 */
static __noinline int ack_kind(struct __sk_buff *skb, const struct segment *seg, __u32 *tsval)
{
	__u64 at = 0, said = 0;
	__u32 length, stamp = 0;
	__u8 o[128] __attribute__((aligned(8))) = {};

	if (!skb || !seg || !tsval)
		return NO_ACK;
	length = seg->options_bytes;
	if (seg->payload || (seg->flags & (TCP_FLAG_FIN | TCP_FLAG_SYN | TCP_FLAG_RST | TCP_FLAG_PSH | TCP_FLAG_ACK | TCP_FLAG_URG)) != TCP_FLAG_ACK)
		return NO_ACK;
	if (length > 40)
		return NO_ACK;
	asm volatile("" : "+r"(length)); /* Linux 7.3's verifier takes in that it is not 0 only where it is bounded already */
	if (!length || !load(skb, seg->options, o, length))
		return NO_ACK;
	for (int i = 0; i < 20; i++) {
		__u8 *option, size;

		at = forgotten(at, *(__u64 *)o);
		said = forgotten(said, *(__u64 *)o);
		stamp = forgotten(stamp, *(__u64 *)o);
		if (at >= length)
			break;
		option = o + (at & 63);
		size = option[1];

		if (option[0] == 0)
			break;
		if (option[0] == 1) { /* no operation */
			at++;
			continue;
		}
		if (size < 2)
			return NO_ACK;
		if (option[0] == 30)
			said |= 1 << (option[2] >> 4);
		if (option[0] == 8)
			__builtin_memcpy(&stamp, option + 2, 4);
		at += size;
	}
	*tsval = bpf_ntohl(stamp);
	if (!stamp || (said & (1 << MPTCP_CAPABLE | 1 << MPTCP_JOIN)))
		return NO_ACK; /* without timestamps a late twin would not be told from a new ACK */
	return said & ~(1 << MPTCP_DSS) ? SIGNAL_ACK : PURE_ACK;
}

/*
 * Whether an ACK has SACK blocks (RFC 2018), as far as Linux has sent it: its sender lacks something, or has it twice. Where they are is as tcp_options_write has it (net/ipv4/tcp_output.c), behind the
 * timestamps; to look for them is more than the verifier takes.
 */
static __always_inline bool has_sack(struct __sk_buff *skb, const struct segment *seg)
{
	__u8 o[16];

	return seg->options_bytes > sizeof(o) && load(skb, seg->options, o, sizeof(o)) && o[12] == 1 && o[13] == 1 && o[14] == 5;
}

/* Whether it says that something came twice: its first block is of data that it acknowledges (RFC 2883). */
static __always_inline bool has_dsack(struct __sk_buff *skb, const struct segment *seg)
{
	__u32 left;

	return has_sack(skb, seg) && load(skb, seg->options + 16, &left, sizeof(left)) && (__s32)(bpf_ntohl(left) - seg->acknowledged) < 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What acks.bpf.c and the daemon say to each other: MPTCP subflows whose ACKs go a second time, over a quicker link. The receiver of a download copies,
 * the sender takes the copies in. Fixed-width fields only, padding explicit; Go types are generated. Ports and tokens are in host order.
 */
#ifndef PLAIT_ACKS_H
#define PLAIT_ACKS_H

#include "flows.h"

/* What is in front of a copied packet, behind UDP's header. */
struct plait_ack_header {
	__u8 magic[2];
	__u8 id;	/* of the copying host's address in the connection */
	__u8 sender_id; /* of the address at the host the copy goes to */
	__u32 token; /* of the MPTCP connection at the host the copy goes to; network order */
};

enum { PLAIT_ACK_MAGIC0 = 0x70, PLAIT_ACK_MAGIC1 = 0x41 };

/* How a flow's ACKs are copied. */
struct plait_ack_route {
	__u64 copies; /* made so far */
	__u64 copied_at_ns; /* the last one */
	__u64 seen_at_ns;   /* the last ACK */
	__u64 woken_at_ns;  /* when something was last seen after which all are made, for copies may be of use again */
	__u64 paid_until_ns; /* copies made are those of the time until then */
	__u8 source[16]; /* of the copies */
	__u8 destination[16];
	__u8 next_hop[16]; /* on the quick link: a gateway, or the destination itself */
	__u32 ifindex;	   /* of the quick link */
	__u32 slow;	   /* of the link by which the ACKs themselves leave */
	__u32 token;
	__u16 source_port;
	__u16 destination_port;
	__u8 id;
	__u8 sender_id;
	__u8 rests; /* 1: the sender has no use for copies now; a few keep its measurement of them */
	__u8 useful; /* 1: it had, since the flow was woken last */
	__u32 pad;
};

/* How a copy tells which socket it is for, and where it must come from: whoever sends from another address has no part in it. */
struct plait_ack_name {
	__u8 from[16]; /* as hellos about it; IPv4 as mapped address */
	__u32 token;
	__u8 id;
	__u8 sender_id;
	__u8 pad[2];
};

/*
 * What copies of a flow's ACKs do. An ACK and its copy are twins; the lead is how much sooner the copy is there, and what the way of the ACKs saves. The
 * round-trip time without copies is the one with them plus the lead.
 */
struct plait_ack_lead {
	__u64 copies; /* that came */
	__u64 late;   /* of them, those whose twin, or a later ACK, was there first */
	__u64 used;   /* of them, those that its socket was given; the others were timed */
	__u64 sampled_at_ns; /* when the copy came whose twin is awaited; 0: none is */
	__u64 filtered_at_ns; /* when a copy that the socket was given was last found not to be there; 0: the last one was */
	__u32 sampled_ack;
	__u32 sampled_tsval; /* RFC 7323 */
	__u32 native_ack; /* of the latest ACK that was no copy */
	__u32 native_tsval;
	__u32 natives; /* how many of those came */
	__u32 lead_us; /* mean, smoothed as TCP smoothes round-trip times */
	__u32 leads;   /* measured */
	__u32 copied_ack; /* of the latest copy that acknowledged more than all before it */
	__u32 copied_tsval; /* 0: there was none */
	__u32 twin_awaited; /* its twin has not come: 1, or 2 if that has SACK blocks */
	__u32 sampled_used; /* 1: the socket was given the copy whose twin is awaited */
	__u32 used_ack; /* of the latest copy that the socket was given */
	__u32 used_tsval; /* 0: there was none */
	__u32 opened_s; /* CLOCK_MONOTONIC, when the socket was first given one that is no signal; 0: never */
};

/* What the congestion control is told of a socket, and what it wants. */
struct plait_ack_native {
	__u64 at_us; /* CLOCK_MONOTONIC */
	__u32 lead_us;
	__u32 closed; /* 1: copies are to be timed and not given to the socket */
	__u64 copied_us; /* when a copy last came; CLOCK_MONOTONIC */
};

#endif

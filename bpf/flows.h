/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What flows.bpf.c and the daemon say to each other: the TCP flows (MPTCP subflows among them) that this host sends from its exits' addresses and
 * from its own. Fixed-width fields only, padding explicit; Go types are generated.
 */
#ifndef PLAIT_FLOWS_H
#define PLAIT_FLOWS_H

struct plait_source {
	__u8 address[16]; /* IPv4 as mapped address */
};

struct plait_flow_key {
	__u8 local[16];
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
};

/* Whether the timer of a flow runs. */
enum plait_flow_armed { PLAIT_FLOW_UNARMED, PLAIT_FLOW_ARMED, PLAIT_FLOW_REFUSED };

/* A flow as its socket had it when its last data was sent; counters since it is known, which is since its first data. All times: CLOCK_MONOTONIC. */
struct plait_flow_stats {
	__u64 acked_bytes;	/* up to the last ACK */
	__u64 heard_at_ns;	/* the last sign that what is sent arrives; 0: none yet */
	__u64 unanswered_at_ns; /* since when data waits for a sign; 0: none does */
	__u64 asked_at_ns;	/* when data was first sent since the last sign; 0: none was */
	__u64 stalled_at_ns;	/* since when that is overdue; 0: it is not */
	__u64 waiting_at_ns;	/* since when each new packet leaves much behind that waits to be sent; 0: the last one did not */
	__u64 first_at_ns;	/* since when the first byte on the way is the same; 0: none is on the way */
	__u64 timed_at_ns;	/* when the packet was sent whose answer tells the next round-trip time; 0: none was */
	__u64 doubted_at_ns;	/* when the flow was first found to hold up its MPTCP connection; 0: it does not */
	__u64 stuck_at_ns;	/* when that was found again, and told; 0: it was not */
	__u32 sent_segments;
	__u32 retransmitted_segments;
	__u32 srtt_us;
	__u32 rtt_us; /* of one packet in each, not smoothed; 0: none is known */
	__u32 least_rtt_us; /* of the last minutes (tcp_min_rtt_wlen); 0: none yet */
	__u32 mdev_us; /* mean deviation of the round-trip time times 4, as TCP adds it to its timeout */
	__u32 next; /* sequence number behind what was sent */
	__u32 acked; /* what the peer expects next */
	__u32 stalls;
	enum plait_flow_armed armed;
	__u32 token; /* of the MPTCP connection; 0: plain TCP */
	__u32 rule;  /* what plait_exit_cgroups says of the socket's cgroup; 0: nothing */
};

/*
 * Said when a flow stalls, when it is heard again, and when it sticks: the peer lacks one of its bytes, and so can use none of those behind it, by whatever flow they come.
 * And when a flow of an MPTCP connection becomes slow: its round trips are much longer than they were, though the connection has no more to send than its flows take.
 */
enum plait_flow_news { PLAIT_FLOW_HEARD, PLAIT_FLOW_STALLED, PLAIT_FLOW_STUCK, PLAIT_FLOW_SLOW };

struct plait_flow_event {
	struct plait_flow_key key;
	enum plait_flow_news news;
};

/* Said when all that an MPTCP connection had sent is acknowledged, or of a part of it when that goes on. */
struct plait_transfer {
	struct plait_flow_key key; /* the subflow that the last byte's acknowledgement came on */
	__u32 token;
	__u32 bytes;
	__u32 us; /* from the first packet on */
};

#endif

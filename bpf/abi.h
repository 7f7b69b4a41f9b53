/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel half and the daemon say to each other. Go types are generated from these structs (go generate ./bpf);
 * fixed-width fields only, padding explicit.
 */
#ifndef PLAIT_ABI_H
#define PLAIT_ABI_H

/* The congestion controls plait holds. The numbers are part of the ABI and those of signals.Algorithm. */
enum plait_algorithm {
	PLAIT_RENO,
	PLAIT_CUBIC,
	PLAIT_BIC,
	PLAIT_HIGHSPEED,
	PLAIT_HTCP,
	PLAIT_HYBLA,
	PLAIT_SCALABLE,
	PLAIT_VEGAS,
	PLAIT_WESTWOOD,
	PLAIT_BBR,
	PLAIT_BURST,
	PLAIT_ALGORITHMS,
	PLAIT_DEFAULT = 255, /* not plait's: the system's default */
};

/* What a policy tells the kernel half; index 0 is for whatever no rule matches. */
struct plait_policy {
	__u8 algorithm; /* enum plait_algorithm of application-limited traffic, and of all traffic unless bulk differs */
	__u8 bulk;	/* enum plait_algorithm while the connection is limited by the path and not by the application */
	__u8 managed;	/* 0: connections stay on the system's default */
	__u8 observed;	/* 1: what is measured is told to the daemon, which says what it would do */
	__u32 holdout_ppm; /* share of the connections that stays on the system's default */
};

/* The daemon's choice for one socket, by cookie; it replaces the policy's algorithms. */
struct plait_choice {
	__u8 algorithm;
	__u8 bulk;
	__u8 pad[6];
};

/* What the daemon keeps current. */
struct plait_control {
	__u64 heartbeat_ns; /* CLOCK_MONOTONIC; when it is older than stale_ns, sockets go back to fallback by themselves */
	__u64 stale_ns;
	__u64 sample_ns; /* shortest time between two samples of a socket */
	__u8 fallback[16]; /* the system's default congestion control */
	__u64 cgroup; /* id of the one whose connections plait takes */
	__u32 generation; /* counts from 1; raised when rules or policies change, or a destination is given back: sockets then look for theirs */
	__u32 cgroup_rules; /* how many rules by cgroup there are */
	__u64 key; /* of the lots that hold connections out, random: who is held out is another for each daemon */
};

/* A destination prefix, IPv4 /24 as mapped /120, IPv6 /48, under a policy. The key of the latency comparison. */
struct plait_prefix {
	__u8 address[16];
	__u8 policy;
	__u8 pad[7];
};

/*
 * Burst latency: four buckets of equal width to each doubling, from 64 us on (64, 80, 96, 112, 128, 160, ...). The first one
 * also holds all that is shorter, the last one all that is longer.
 */
#define PLAIT_LATENCY_BUCKETS 96
struct plait_group {
	__u64 connections;
	__u64 bursts;
	__u64 squares; /* sum over the connections of the square of how many bursts are theirs */
	__s64 logs_squared; /* sum over the connections of the square of the sum of their bursts' logarithms (latency_log in measure.h) */
	__s64 products; /* sum over the connections of that sum times how many the bursts are */
	__u64 bytes;
	__u64 buckets[PLAIT_LATENCY_BUCKETS];
};

/* What is compared. One entry has both groups: were each forgotten by itself, they would be of different times. */
struct plait_latency {
	struct plait_group managed;
	struct plait_group holdout; /* connections left on the system's default */
	__u64 entry; /* counts from 1; 0: no burst yet. A destination that was forgotten and comes back is another entry */
};

/* The sockets a sample can be about, for display. */
struct plait_flow {
	__u8 local[16]; /* IPv4 as mapped addresses */
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 netns;
};

/* Which connection plait why asks about: by its cookie, by both ends, the local one first, or by any one (other_port 0). */
struct plait_question {
	__u8 one[16]; /* IPv4 as mapped address */
	__u8 other[16];
	__u16 one_port;
	__u16 other_port;
	__u32 pad;
	__u64 cookie; /* 0: by its ends */
};

/* What the kernel half knows of it, whether plait manages it or not. */
struct plait_answer {
	struct plait_flow flow;
	__u32 found; /* connections of that name; the rest is about one of them */
	__u8 name[16]; /* of its congestion control */
	__u8 policy; /* which it is under by the rules of now */
	__u8 known; /* plait has, or had, to do with it */
	__u8 kind; /* why it is followed (SOCK_* in sock.h); 0: it is not, or no longer */
	__u8 chosen; /* its application has set its congestion control, by all that plait knows */
	__u8 in_cgroup; /* it is of the cgroup whose connections plait takes */
	__u8 pad[3];
};

/* One report about a socket: what happened since its last one. The fields are those of signals.Sample. */
struct plait_sample {
	__u64 cookie;
	__u64 at_us; /* CLOCK_MONOTONIC */
	__u64 rate_bps;
	__u64 dispersion_bps;
	__u32 interval_us;
	__u32 srtt_us;
	__u32 min_rtt_us;
	__u32 delivered;
	__u32 lost_single;
	__u32 lost_burst;
	__u32 rtt_at_loss_us;
	__u32 spurious_recoveries;
	__u32 idle_restarts;
	__u32 bursts;
	__u32 burst_bytes;
	__u32 burst_latency_us;
	__u32 cwnd_segments;
	__u32 ssthresh_segments;
	__u32 mss_bytes;
	__u8 algorithm;
	__u8 bulk;
	__u8 policy;
	__u8 closed; /* the last sample of this socket */
	struct plait_flow flow;
	__u32 generation; /* of the rules that policy is from */
	__u32 rtt_at_loss_min_us;
	__u32 rtt_at_loss_max_us;
	__u8 lossy_rounds;
	__u8 pad[3];
};

/* Counters of the kernel half, all since it was loaded. */
struct plait_counters {
	__u64 attached;		 /* connections moved to plait */
	__u64 held_out;		 /* connections left on the default for comparison */
	__u64 refused;		 /* the kernel refused a change of congestion control */
	__u64 switches;		 /* changes of algorithm inside plait */
	__u64 samples_dropped;	 /* ring buffer full */
	__u64 fell_back;	 /* sockets that returned to the default while they were open */
	__u64 bursts_unmeasured; /* bursts of managed connections whose end was not seen */
	__u64 resumed;		 /* connections that began with what an earlier one had learned of their path (path.h) */
};

#endif

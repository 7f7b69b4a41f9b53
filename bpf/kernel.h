/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fields of the kernel that plait reads and writes, and no others. Offsets are those of the running kernel (CO-RE);
 * bit-fields must be read with BPF_CORE_READ_BITFIELD, for a plain read takes the wrong bit on another kernel without any error.
 */
#ifndef PLAIT_KERNEL_H
#define PLAIT_KERNEL_H

typedef _Bool bool;
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u16 __sum16;
typedef __u32 __wsum;

enum { false = 0, true = 1 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

/* include/uapi/linux/bpf.h */
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1 };
enum { BPF_SK_STORAGE_GET_F_CREATE = 1 };
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
	BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB = 4,
	BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
	BPF_SOCK_OPS_RETRANS_CB = 9,
	BPF_SOCK_OPS_STATE_CB = 10,
	BPF_SOCK_OPS_RTT_CB = 12,
};
enum {
	BPF_SOCK_OPS_RETRANS_CB_FLAG = 1 << 1,
	BPF_SOCK_OPS_STATE_CB_FLAG = 1 << 2,
	BPF_SOCK_OPS_RTT_CB_FLAG = 1 << 3,
};
enum { SOL_TCP = 6, TCP_CONGESTION = 13 };
enum { AF_INET6 = 10 };
enum { TCP_ESTABLISHED = 1, TCP_FIN_WAIT1 = 4, TCP_CLOSE = 7, TCP_CLOSE_WAIT = 8, TCP_LAST_ACK = 9, TCP_LISTEN = 10 };

/* include/net/tcp.h, include/uapi/linux/tcp.h, include/net/sock.h */
enum tcp_ca_state { TCP_CA_Open, TCP_CA_Disorder, TCP_CA_CWR, TCP_CA_Recovery, TCP_CA_Loss };
enum tcp_ca_event { CA_EVENT_TX_START, CA_EVENT_CWND_RESTART, CA_EVENT_COMPLETE_CWR, CA_EVENT_LOSS };
enum sk_pacing { SK_PACING_NONE, SK_PACING_NEEDED, SK_PACING_FQ };
enum { FLAG_RETRANS_DATA_ACKED = 0x08 }; /* of an ACK; net/ipv4/tcp_input.c */
#define TCP_INFINITE_SSTHRESH 0x7fffffff
#define TCP_INIT_CWND 10

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct netns_ipv4 {
	int sysctl_tcp_reordering;
	__u8 sysctl_tcp_slow_start_after_idle;
	__u8 sysctl_tcp_min_tso_segs;
	int sysctl_tcp_pacing_ss_ratio;
	int sysctl_tcp_pacing_ca_ratio;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct netns_ipv4 ipv4;
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	__u32 sk_pacing_status;
	unsigned int sk_gso_max_size;
	__u8 sk_pacing_shift;
};

struct inet_sock {
	struct sock sk;
};

struct tcp_congestion_ops;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	__u32 icsk_rto; /* jiffies */
	__u8 icsk_ca_state : 5;
	__u8 icsk_ca_setsockopt : 1;
	__u8 icsk_ca_initialized : 1;
	__u8 icsk_retransmits; /* timeouts in a row, without this one */
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

/* include/linux/tcp.h */
struct tcp_options_received {
	int ts_recent_stamp; /* seconds, CLOCK_MONOTONIC */
	__u32 ts_recent;     /* of the other end, RFC 7323 */
	__u32 rcv_tsval; /* the peer's clock, in the last segment that had timestamps (RFC 7323) */
};

struct tcp_rack {
	__u32 rtt_us; /* of what was acknowledged last */
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 tcp_mstamp; /* us */
	__u64 delivered_mstamp; /* us; when delivered last rose */
	__u64 first_tx_mstamp;	/* us; when the last sent of what has arrived was sent (tcp_rate_skb_delivered) */
	__u64 tcp_wstamp_ns;	/* departure time of the next packet, if paced */
	__u64 tcp_clock_cache;	/* ns; now, on the same clock */
	__u32 lsndtime;	  /* jiffies */
	__u32 rcv_nxt;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 snd_wnd; /* bytes from snd_una on that the peer has room for */
	__u32 high_seq; /* snd_nxt when the recovery began */
	__u32 write_seq;
	__u32 mss_cache;
	__u32 srtt_us; /* << 3 */
	__u32 mdev_us; /* mean deviation << 2 */
	__u32 data_segs_out;
	__u32 total_retrans;
	__u32 packets_out;
	__u32 retrans_out;
	__u32 lost_out;
	__u32 sacked_out;
	__u32 max_packets_out;
	__u32 snd_ssthresh;
	__u32 snd_cwnd;
	__u32 snd_cwnd_cnt;
	__u32 snd_cwnd_clamp;
	__u32 prior_cwnd;
	__u32 prr_delivered;
	__u32 prr_out;
	__u32 delivered;
	__u32 lost;
	__u32 app_limited;
	__u32 undo_marker;
	__u32 reordering;
	struct minmax rtt_min;
	struct tcp_options_received rx_opt;
	struct tcp_rack rack;
	__u8 is_cwnd_limited : 1;
	bool is_mptcp; /* a subflow; where the kernel has MPTCP */
};

/* net/mptcp/protocol.h */
struct mptcp_sock {
	__u64 write_seq;
	__u64 snd_nxt;
	__u64 snd_una;
	__u32 token;
};

struct sk_buff {
	__u16 network_header; /* bytes from the head on, as the next */
	__u16 mac_header;
};

struct rate_sample {
	__u32 prior_delivered;
	__s32 delivered;
	long interval_us;
	long rtt_us;
	int losses;
	__u32 acked_sacked;
	__u32 prior_in_flight;
	bool is_app_limited;
	bool is_retrans; /* of the packet sent last of those acknowledged */
	bool is_ack_delayed;
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us;
	__u32 in_flight;
};

/* Laid out by the kernel's own description when it is registered: the order here does not matter. */
struct tcp_congestion_ops {
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_control)(void);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
	void (*cwnd_event_tx_start)(struct sock *sk); /* from Linux 7.1 on */
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	__u32 (*undo_cwnd)(struct sock *sk);
	__u32 (*sndbuf_expand)(struct sock *sk);
	__u32 (*min_tso_segs)(struct sock *sk);
	__u32 flags;
	char name[16];
};

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

/* include/uapi/linux/bpf.h: the program's own view, converted by the verifier */
struct bpf_sock;
struct bpf_sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 is_fullsock;
	__u32 snd_cwnd;
	__u32 srtt_us;
	__u32 bpf_sock_ops_cb_flags;
	__u32 state;
	__u32 rtt_min;
	__u32 snd_ssthresh;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 mss_cache;
	__u32 ecn_flags;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u32 packets_out;
	__u32 retrans_out;
	__u32 total_retrans;
	__u32 segs_in;
	__u32 data_segs_in;
	__u32 segs_out;
	__u32 data_segs_out;
	__u32 lost_out;
	__u32 sacked_out;
	__u32 sk_txhash;
	__u64 bytes_received;
	__u64 bytes_acked;
	struct bpf_sock *sk;
};

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	__u64 flow_keys __attribute__((aligned(8)));
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	struct bpf_sock *sk __attribute__((aligned(8)));
	__u32 gso_size;
};

struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));

enum { TCX_NEXT = -1 };
enum bpf_hdr_start_off { BPF_HDR_START_MAC, BPF_HDR_START_NET };
enum { CLOCK_MONOTONIC = 1 };

#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define USEC_PER_SEC 1000000ULL
#define USEC_PER_MSEC 1000ULL

#endif

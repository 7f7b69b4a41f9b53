/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state plait keeps per socket, the maps it shares with the daemon, and the questions every algorithm asks of a socket. */
#ifndef PLAIT_SOCK_H
#define PLAIT_SOCK_H

#include "kernel.h"
#include "abi.h"

/* Private state of an algorithm; ICSK_CA_PRIV_SIZE is 104 bytes, ours may be a little more. */
#define PLAIT_PRIVATE_WORDS 20

/* Why a socket is followed. */
enum { SOCK_MANAGED = 1, SOCK_HOLDOUT = 2, SOCK_OBSERVED = 3 };

/* What a sample tells besides the socket's state, since the last one. */
struct gathered {
	__u64 at_us; /* when the last one was sent */
	__u64 rate_bps;
	__u32 delivered;
	__u32 lost_single;
	__u32 lost_burst;
	__u32 rtt_at_loss_us;
	__u32 spurious_recoveries;
	__u32 idle_restarts;
	__u32 bursts;
	__u32 burst_bytes; /* of the last one */
	__u32 burst_latency_us;
	__u32 observed_delivered; /* the kernel's count at the last sample of a socket that is only observed */
};

struct plait_sock {
	__u64 cookie;
	__u8 algorithm; /* in use */
	__u8 policy;
	__u8 kind; /* SOCK_* */
	__u8 bulk; /* the connection is limited by the path, not by the application */
	__u8 pacing_ours; /* internal pacing was turned on by us */
	__u8 smooth; /* its policy may do better than the kernel's algorithms, and need not be one of them */
	__u8 round_start; /* this ACK is the first of a round trip */
	__u8 trains; /* dispersions measured in this burst */
	__u8 train_measured : 1; /* this ACK completed one */
	__u8 train_sparse : 1;	 /* which was sent in more than a quarter of the time it took to come through */
	__u8 marked : 1; /* icsk_ca_setsockopt was set when plait left it on the default, and says nothing of what its application does since */
	__u8 hooked;	    /* sockops.h sees its retransmissions */
	__u8 asked;	    /* the application asked for plait */
	__u8 later;	    /* an MPTCP subflow that is taken with its first data */
	__u8 peer_ms;	    /* the peer's clock, which its timestamps tell, goes by milliseconds */
	__u8 lossy_rounds;  /* since the last sample, 255 at the most */
	__u8 ambiguous;	    /* this ACK is also for a segment that was sent twice (RFC 6298, section 3) */
	__u8 initial_packets; /* the route's initial window, 255 at the most; 0: not known, for the connection was there before */
	__u32 generation; /* of the rules its policy is from */
	__u32 counted_in; /* the entry of plait_latencies in which it is among the connections */
	__u32 lead_us; /* by which ACKs come sooner than by themselves, as copies (fair.h); 0: they do not */
	__u32 counted; /* its bursts in that entry, COMPARED_BURSTS at the most */
	__u32 handshake_us; /* the round trip of its handshake; 0: not known, for the connection was there before */
	__s32 logs; /* the sum of their logarithms (latency_log in measure.h) */

	/* Rounds, PRR and idle restarts: what the kernel does itself around algorithms without cong_control (window.h). */
	__u32 round_delivered;
	__u32 prr_delivered;
	__u32 last_una;
	__u32 asked_to_send; /* of write_seq and snd_wnd: whether more was written, or the peer's window is another, since sending was last tried */
	__u32 carried;	    /* most packets in flight that arrived without a loss, in the present window of bursts */
	__u32 carried_past; /* in the one before */
	__u32 in_flight;    /* most in flight in this round */
	__u32 in_flight_past; /* in the one before: whether all of them arrived, the end of this one tells */
	__u32 lost_in_flight; /* most in flight in a round trip until packets were found lost */
	__u32 wmax_packets; /* CUBIC's, kept while another algorithm is in use (cc/cubic.h) */
	__u32 burst_rounds; /* with data on the way, in sixteenths, less twice the pauses */

	/* The burst in flight: from the first byte written after everything was acknowledged. */
	__u32 burst_seq; /* sequence number of its first byte */
	__u32 rtt_at_loss_max_us; /* since the last sample, */
	__u32 rtt_at_loss_min_us; /* likewise */
	__u64 burst_start_us; /* 0: none */
	__u64 idle_since_us;  /* when the last one ended */
	__u64 ack_us;	      /* its first ACK; 0: none yet */
	__u32 ack_delivered;
	__u32 train_delivered;
	__u64 train_start_us; /* the ACK from which the dispersion at work is measured */
	__u64 train_sent_us;  /* when the packet was sent that it acknowledges */
	__u32 train_tsval;    /* the peer's clock when it sent that */
	__u32 round_losses; /* packets found lost in this round trip */

	/* What the path has shown. */
	__u32 min_rtt_us;      /* in the present window of bursts */
	__u32 min_rtt_past_us; /* in the one before */
	__u32 min_rtt_bursts;
	__u32 last_rtt_us;
	__u64 min_rtt_since_us;
	__u64 dispersion_Bps; /* rate at which trains of packets come through, bytes per second */
	__u64 rate_Bps;	      /* highest delivery rate of the last round trip that is over, and of this one */
	__u64 rate_round_Bps;

	/* Retransmissions since the last sample, by length of their runs (sockops.h). */
	__u32 run_segments;
	__u32 run_end; /* sequence number behind the last, were that a full segment */
	struct gathered gathered;

	__u64 private[PLAIT_PRIVATE_WORDS];
};

/* The kernel puts 72 to 80 bytes in front and rounds up to a power of two: beyond this a socket takes 512 bytes more. */
_Static_assert(sizeof(struct plait_sock) <= 432, "fits in 512 bytes");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct plait_sock);
} plait_socks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct plait_policy);
} plait_policies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct plait_choice);
} plait_choices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
	__type(value, struct plait_sample);
} plait_samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct plait_prefix);
	__type(value, struct plait_latency);
} plait_latencies SEC(".maps");

struct plait_control plait_daemon;
struct plait_counters plait_counts;

/* Latencies of all bursts since plait came up, of managed and of held-out connections: what plait_latencies forgets stays here. */
__u64 plait_bursts[2][PLAIT_LATENCY_BUCKETS];

#define count(name) __sync_fetch_and_add(&plait_counts.name, 1)

static __always_inline const struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (const struct tcp_sock *)sk;
}

static __always_inline struct tcp_sock *tcp_sk_mut(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline bool is_subflow(struct sock *sk)
{
	return bpf_core_field_exists(((struct tcp_sock *)0)->is_mptcp) && ((struct tcp_sock *)sk)->is_mptcp;
}

/*
 * Whether the application has set the congestion control, also to what it is anyway. The mark is there as well after a setsockopt of plait's own, and the kernel sets that
 * of MPTCP's subflows by itself.
 */
static __always_inline bool chosen(struct sock *sk, const struct plait_sock *s)
{
	if (!BPF_CORE_READ_BITFIELD((struct inet_connection_sock *)sk, icsk_ca_setsockopt))
		return false;
	return !s || (!s->marked && !is_subflow(sk));
}

static __always_inline __u8 ca_state(struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD((struct inet_connection_sock *)sk, icsk_ca_state);
}

static __always_inline __u32 packets_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

static __always_inline bool in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

static __always_inline bool cwnd_limited(struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

static __always_inline __u32 srtt_us(const struct tcp_sock *tp)
{
	return tp->srtt_us >> 3;
}

/*
 * The round trip that an ACK shows; not positive: none. Of a segment sent twice it is its time stamp's echo (tcp_ack_update_rtt()), which is not only coarse: sent by
 * the retransmission timer while paced packets wait, it is stamped with the departure time of the next one, and comes back too soon by that, up to the whole round trip.
 */
static __always_inline long acked_rtt_us(const struct plait_sock *s, const struct rate_sample *rs)
{
	return s->ambiguous ? -1 : rs->rtt_us;
}

/* What an ACK shows as round trip, as it would be without copies of ACKs; not positive: nothing. */
static __always_inline __s32 sampled_rtt_us(const struct plait_sock *s, const struct ack_sample *sample)
{
	__s32 rtt_us = sample->rtt_us;

	return rtt_us > 0 ? rtt_us + (__s32)s->lead_us : rtt_us;
}

/* The shortest round trip of the last 8 to 16 bursts or 10 to 20 s: a path may change for the worse, and minima over minutes would not see it. */
static __always_inline __u32 min_rtt_us(const struct plait_sock *s)
{
	if (!s->min_rtt_us)
		return s->min_rtt_past_us;
	if (!s->min_rtt_past_us)
		return s->min_rtt_us;
	return min(s->min_rtt_us, s->min_rtt_past_us);
}

/* The most packets in flight that have lately arrived without a loss. */
static __always_inline __u32 carried(const struct plait_sock *s)
{
	return max(s->carried, s->carried_past);
}

/* The daemon has been silent for so long that the host must be as if plait were not there. */
static __always_inline bool daemon_silent(void)
{
	__u64 heartbeat = plait_daemon.heartbeat_ns;

	return heartbeat + plait_daemon.stale_ns < bpf_ktime_get_ns();
}

#endif

//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * plait, a congestion control that holds several algorithms and moves a socket between them while it runs: before the first
 * packet after an idle time, and with the first ACK of every round trip.
 *
 * Hooks: struct tcp_congestion_ops (here), cgroup/sock_ops (sockops.h), the iterator over TCP sockets and the entry of
 * tcp_sendmsg_locked and others (host.h). Loaded by the daemon, which is the only writer of the maps.
 */
#include "algorithm.h"
#include "gate.h"
#include "measure.h"
#include "path.h"
#include "window.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * Bursts that last this many round trips, less so many times the pauses between them, or one that has this many bytes, are a transfer: what the path
 * carries is the limit. It is over when nothing was in flight for a round trip and 100 ms, not at every moment in which the writer is late.
 */
enum { BULK_ROUNDS = 32, BULK_BYTES = 2 << 20, BULK_OVER_US = 100000, BULK_PAUSE = 2, BULK_OVERRUN = 8, BULK_OVERRUN_PACKETS = 2, BULK_SHIFT = 4 };

/* Sockets whose cookie could not be had count from here; the kernel's own cookies count from 1. */
#define OWN_COOKIE (1ULL << 63)
static __u64 next_cookie;

static __always_inline struct plait_sock *plait_sock(struct sock *sk)
{
	return bpf_sk_storage_get(&plait_socks, sk, 0, 0);
}

/*
 * Leaving an algorithm whose window has no bound: not more than the path has shown it can carry, which is what was in flight without a loss. Who overruns a short queue in each
 * round trip has no such, but what arrived in one leaves room for as much in the shortest round trip, with nothing in the queue.
 */
static __always_inline void clamp_to_carried(struct tcp_sock *tp, struct plait_sock *s)
{
	__u32 arrives = s->rate_Bps * min_rtt_us(s) / max(tp->mss_cache, 1U) / USEC_PER_SEC;
	__u32 packets = max(max(carried(s), arrives), (__u32)TCP_INIT_CWND);

	tp->snd_cwnd = min(tp->snd_cwnd, packets);
	if (s->lost_in_flight) /* without a loss so far, nobody knows how much more it would carry */
		tp->snd_ssthresh = min(tp->snd_ssthresh, packets);
}

/* Whether the window is what a loss reduces, and not the rate. */
static __always_inline bool reduces_window(const struct plait_sock *s)
{
	return !sets_rate(s->algorithm) || (s->algorithm == PLAIT_BURST && !((const struct burst *)s->private)->capacity_Bps);
}

static __always_inline bool unbounded(__u8 algorithm)
{
	return algorithm == PLAIT_HYBLA || algorithm == PLAIT_SCALABLE || sets_rate(algorithm);
}

/* Another algorithm takes over, or another congestion control. */
static __always_inline void leave_window(struct sock *sk, struct plait_sock *s)
{
	struct tcp_sock *tp = tcp_sk_mut(sk);

	if (s->algorithm == PLAIT_BBR)
		bbr_leave(sk, s);
	if (unbounded(s->algorithm))
		clamp_to_carried(tp, s);
	if (s->algorithm == PLAIT_BURST && !reduces_window(s)) /* its window has outgrown what a loss left before it knew the path */
		tp->snd_ssthresh = max(tp->snd_ssthresh, tp->snd_cwnd);
}

/* Changes the algorithm. Sequence state stays, cwnd and ssthresh too unless they must be bounded; pacing goes if the next one does without. */
static __noinline int switch_algorithm(struct sock *sk, struct plait_sock *s, __u8 to)
{
	if (!sk)
		return 0;
	leave_window(sk, s);
	if (s->algorithm == PLAIT_BURST) {
		path_learn(sk, s);
		burst_leave(tcp_sk_mut(sk), s);
	}
	if (!sets_rate(to))
		set_pacing(sk, s, s->lead_us || s->smooth);
	s->algorithm = to;
	algorithm_init(sk, s);
	count(switches);
	return 0;
}

static __always_inline void leave(struct sock *sk)
{
	if (bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, plait_daemon.fallback, sizeof(plait_daemon.fallback)))
		count(refused);
	else
		count(fell_back);
}

/* The daemon is gone, or plait has no more to do with it: the socket leaves for the system's default, which keeps its window. */
static __noinline int fall_back(struct sock *sk)
{
	if (!sk)
		return 0;
	leave(sk);
	return 0;
}

/* What the daemon chose for this socket, or else its policy, also when the daemon has forgotten a socket that was long idle: it begins anew, too. */
static __always_inline __u8 wanted(const struct plait_sock *s, bool bulk)
{
	struct plait_choice *c = bpf_map_lookup_elem(&plait_choices, &s->cookie);
	__u32 index = s->policy;
	struct plait_policy *p;

	if (c)
		return bulk ? c->bulk : c->algorithm;
	p = bpf_map_lookup_elem(&plait_policies, &index);
	if (p)
		return bulk ? p->bulk : p->algorithm;
	return bulk ? PLAIT_CUBIC : PLAIT_BURST;
}

/* Moves this socket to what is wanted for it now. Says whether plait goes on with it. */
static __noinline int choose(struct sock *sk, struct plait_sock *s)
{
	__u8 want;

	if (outdated(s) && !revise(sk, s)) {
		fall_back(sk);
		return 0;
	}
	want = wanted(s, s->bulk);
	s->smooth = (s->bulk ? wanted(s, false) : want) == PLAIT_BURST;
	if (want < PLAIT_ALGORITHMS && want != s->algorithm)
		switch_algorithm(sk, s, want);
	return 1;
}

static __always_inline void window_control(struct sock *sk, struct plait_sock *s, const struct rate_sample *rs, bool una_advanced)
{
	struct tcp_sock *tp = tcp_sk_mut(sk);
	struct fair *f = fair_of(sk, s);
	bool grows = may_grow(sk, rs, una_advanced), smooth = s->smooth && leaves_room(sk, rs);

	if (in_cwnd_reduction(ca_state(sk)))
		proportional_rate_reduction(tp, s, rs, una_advanced);
	else if (grows && f)
		fair_cong_avoid(sk, s, f, rs->acked_sacked);
	else if (grows)
		algorithm_cong_avoid(sk, s, rs->acked_sacked);
	if (smooth)
		set_pacing(sk, s, true);
	if (s->lead_us || s->pacing_ours)
		fair_pace(sk, s, smooth);
	else
		window_pacing_rate(sk, window_pacing_percent(sk), tp->srtt_us);
}

/* Who pauses a third of the time is limited by the application, however short the pauses are. */
static __always_inline void notice_pause(const struct tcp_sock *tp, struct plait_sock *s, __u64 now_us)
{
	__u64 pause_us = now_us - s->idle_since_us, rounds;

	if (pause_us > srtt_us(tp) + BULK_OVER_US) {
		s->bulk = 0;
		s->burst_rounds = 0;
	} else if (!s->bulk) {
		rounds = (BULK_PAUSE << BULK_SHIFT) * pause_us / max(srtt_us(tp), 1u);
		s->burst_rounds -= min(rounds, (__u64)s->burst_rounds);
	}
}

static __always_inline void notice_rounds(struct plait_sock *s, __u32 more)
{
	if (s->burst_rounds <= BULK_ROUNDS << BULK_SHIFT)
		s->burst_rounds += more;
	if (s->burst_rounds > BULK_ROUNDS << BULK_SHIFT)
		s->bulk = 1;
}

/* This ACK shows that the round trip has overrun a queue. */
static __always_inline bool overran(const struct plait_sock *s, const struct rate_sample *rs)
{
	return rs->losses > 0 && s->round_losses >= BULK_OVERRUN_PACKETS && s->round_losses - rs->losses < BULK_OVERRUN_PACKETS && burst_queue_stands(s);
}

/* Who overruns the queue in one round trip after the other is limited by the path, and too fast for it, as many bursts at once are: such a round counts as eight. */
static __always_inline void notice_bulk(struct tcp_sock *tp, struct plait_sock *s, const struct rate_sample *rs)
{
	notice_rounds(s, (s->round_start + BULK_OVERRUN * overran(s, rs)) << BULK_SHIFT);
	/* One that was taken in the middle of a transfer has no beginning (burst_start_us), and is known by its rounds alone. */
	if (s->burst_start_us && tp->snd_una - s->burst_seq > BULK_BYTES)
		s->bulk = 1;
}

static __always_inline int control(struct sock *sk, const struct rate_sample *rs, bool ambiguous)
{
	struct plait_sock *s = plait_sock(sk);
	struct tcp_sock *tp = tcp_sk_mut(sk);
	struct plait_ack_native *n;
	bool una_advanced;

	if (!s)
		return 0;
	una_advanced = tp->snd_una != s->last_una;
	s->last_una = tp->snd_una;
	s->ambiguous = ambiguous;
	measure(sk, s, rs);
	if (is_subflow(sk)) {
		n = bpf_sk_storage_get(&plait_ack_natives, sk, 0, 0);
		if (n)
			fair_update(sk, s, n, rs);
	}
	notice_bulk(tp, s, rs);
	if (in_cwnd_reduction(ca_state(sk))) /* under whichever algorithm: the next one may reduce */
		s->prr_delivered += rs->acked_sacked;
	if (s->round_start) {
		if (daemon_silent()) {
			s->kind = 0;
			return fall_back(sk);
		}
		if (!choose(sk, s))
			return 0;
	}
	if (s->algorithm == PLAIT_BURST) {
		path_delivers(sk, s, rs->acked_sacked);
		burst_main(sk, s, rs, una_advanced);
	} else if (s->algorithm == PLAIT_BBR) {
		bbr_main(sk, s, rs);
	} else {
		window_control(sk, s, rs, una_advanced);
	}
	if (s->burst_start_us && all_acknowledged(tp)) {
		burst_ends(sk, s, tp->tcp_mstamp);
		if (s->algorithm == PLAIT_BURST)
			path_learn(sk, s);
	}
	if (tp->snd_wnd < tp->mss_cache) /* until the peer has room again nothing arrives, however fast the path is */
		s->ack_us = 0;
	if (s->algorithm == PLAIT_BURST && (tp->snd_wnd < tp->mss_cache || all_acknowledged(tp)))
		path_leave(sk, s, false);
	return sample_send(sk, s, false);
}

/* Until Linux 6.9 cong_control has (sk, rs), from 6.10 on (sk, ack, flag, rs): the daemon loads the one that fits. */
SEC("struct_ops")
int BPF_PROG(plait_cong_control, struct sock *sk, const struct rate_sample *rs)
{
	return control(sk, rs, rs->is_retrans);
}

SEC("struct_ops")
int BPF_PROG(plait_cong_control_flag, struct sock *sk, __u32 ack, int flag, const struct rate_sample *rs)
{
	return control(sk, rs, flag & FLAG_RETRANS_DATA_ACKED);
}

SEC("struct_ops")
void BPF_PROG(plait_init, struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct plait_sock *s = 0;
	bool fresh;
	__u8 want;

	if (!daemon_silent()) /* else accepted by a socket that has plait's name from an earlier one */
		s = bpf_sk_storage_get(&plait_socks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) { /* or no memory for it (net.core.optmem_max): nothing would change its window */
		leave(sk);
		return;
	}
	if (!s->cookie) /* the application set plait: no helper gives the cookie here */
		s->cookie = OWN_COOKIE | __sync_fetch_and_add(&next_cookie, 1);
	/* plait itself comes with a cookie, and never to what it has held out or observes */
	s->asked |= s->cookie & OWN_COOKIE || s->kind == SOCK_HOLDOUT || s->kind == SOCK_OBSERVED;
	s->kind = SOCK_MANAGED;
	s->marked = 1;
	s->lead_us = 0;
	s->smooth = 0;
	s->last_una = tp->snd_una;
	s->round_delivered = tp->delivered; /* from 0 no round trip would be seen beyond 2^31 packets, nor that the daemon is gone */
	s->prr_delivered = tp->prr_delivered;
	fresh = !tp->data_segs_out && tp->snd_cwnd > 1; /* 1: of a handshake that lost packets (tcp_init_transfer) */
	if (fresh)
		s->initial_packets = min(tp->snd_cwnd, 255u);
	if (s->hooked && !s->train_start_us) /* of the handshake; what a connection that was there before heard last came at a time unknown */
		train_begins(tp, s, tp->tcp_mstamp);
	want = wanted(s, false);
	s->algorithm = want < PLAIT_ALGORITHMS ? want : PLAIT_CUBIC;
	algorithm_init(sk, s);
	if (fresh && !tp->total_retrans && !is_subflow(sk) && s->algorithm == PLAIT_BURST)
		path_resume(sk, s);
}

/*
 * The connection ends, or leaves for another congestion control: in whatever way, it leaves without our pacing, with a window that the path has carried, and without copies of
 * ACKs that nobody corrects for.
 */
SEC("struct_ops")
void BPF_PROG(plait_release, struct sock *sk)
{
	struct plait_sock *s = plait_sock(sk);
	struct plait_ack_native *n;

	if (!s)
		return;
	n = is_subflow(sk) ? bpf_sk_storage_get(&plait_ack_natives, sk, 0, 0) : 0;
	if (n) {
		n->closed = 1;
		fair_leave(sk, s);
	}
	if (s->burst_start_us) { /* nobody will see its end */
		s->burst_start_us = 0;
		count(bursts_unmeasured);
	}
	if (s->algorithm == PLAIT_BURST)
		path_leave(sk, s, false);
	end_pacing(sk, s);
	leave_window(sk, s);
	sample_send(sk, s, true);
}

SEC("struct_ops")
__u32 BPF_PROG(plait_ssthresh, struct sock *sk)
{
	struct plait_sock *s = plait_sock(sk);
	struct fair *f;

	if (!s)
		return reno_ssthresh(tcp_sk(sk));
	f = is_subflow(sk) && !sets_rate(s->algorithm) ? bpf_sk_storage_get(&plait_fairs, sk, 0, 0) : 0;
	return f ? fair_ssthresh(sk, s, f) : algorithm_ssthresh(sk, s);
}

SEC("struct_ops")
__u32 BPF_PROG(plait_undo_cwnd, struct sock *sk)
{
	struct plait_sock *s = plait_sock(sk);
	struct fair *f;

	if (!s)
		return reno_undo_cwnd(tcp_sk(sk));
	s->gathered.spurious_recoveries++;
	f = fair_of(sk, s);
	return f ? fair_undo_cwnd(sk, s, f) : algorithm_undo_cwnd(sk, s);
}

SEC("struct_ops")
void BPF_PROG(plait_set_state, struct sock *sk, __u8 state)
{
	struct plait_sock *s = plait_sock(sk);
	struct tcp_sock *tp = tcp_sk_mut(sk);
	__u8 from = ca_state(sk);

	if (!s)
		return;
	if (in_cwnd_reduction(state) && !in_cwnd_reduction(from))
		s->prr_delivered = 0;
	/* No ACK enters, and sets the window, where a timer finds the losses (tcp_rack_reo_timeout()): all of them would go again at once. */
	if (state == TCP_CA_Recovery && from != TCP_CA_Recovery && reduces_window(s) && tp->snd_ssthresh < tp->prior_cwnd)
		tp->snd_cwnd = packets_in_flight(tp) + 1;
	if (state == TCP_CA_Loss) { /* what a timeout finds lost no ACK tells (rate_sample), and it was not carried */
		s->in_flight = s->in_flight_past = 0;
		if (s->algorithm == PLAIT_BURST && ((struct inet_connection_sock *)sk)->icsk_retransmits >= PATH_GONE)
			path_leave(sk, s, false);
	}
	algorithm_set_state(sk, s, state);
	/* tcp_end_cwnd_reduction(), which leaves it to algorithms with cong_control */
	if (in_cwnd_reduction(from) && !in_cwnd_reduction(state) && state != TCP_CA_Loss && reduces_window(s)) {
		if (tp->snd_ssthresh < (s->algorithm == PLAIT_BURST ? tp->prior_cwnd : (__u32)TCP_INFINITE_SSTHRESH) && (from == TCP_CA_CWR || tp->undo_marker))
			tp->snd_cwnd = tp->snd_ssthresh;
		if (from == TCP_CA_CWR || tp->undo_marker) /* else it was undone: the kernel tells of a reduction that is undone at its end, and Westwood then makes one */
			fair_event(sk, s, CA_EVENT_COMPLETE_CWR);
	}
}

SEC("struct_ops")
void BPF_PROG(plait_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct plait_sock *s = plait_sock(sk);

	if (s)
		fair_event(sk, s, event);
}

/* From Linux 7.1 on that event comes here and no longer to cwnd_event (kernel commit d1e59a469737); the daemon loads it where the kernel knows it. */
SEC("struct_ops")
void BPF_PROG(plait_cwnd_event_tx_start, struct sock *sk)
{
	struct plait_sock *s = plait_sock(sk);

	if (s)
		fair_event(sk, s, CA_EVENT_TX_START);
}

SEC("struct_ops")
void BPF_PROG(plait_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct plait_sock *s = plait_sock(sk);

	if (s)
		fair_pkts_acked(sk, s, sample);
}

/*
 * Asked at the start of every attempt to send (tcp_write_xmit), before the window is looked at: the one place where a
 * congestion control can act between an idle time and its first packet.
 */
SEC("struct_ops")
__u32 BPF_PROG(plait_min_tso_segs, struct sock *sk)
{
	struct plait_sock *s = plait_sock(sk);
	struct tcp_sock *tp = tcp_sk_mut(sk);
	__u32 asked = tp->write_seq + tp->snd_wnd * 0x9e3779b1; /* odd: a window that is smaller by what was written would give the same sum */
	bool anew, begins, joins;

	if (!s)
		return window_min_tso_segs(sk);
	anew = asked != s->asked_to_send;
	s->asked_to_send = asked;
	begins = !tp->packets_out && tp->write_seq != tp->snd_una && !only_fin(sk);
	if (begins) {
		if (!s->burst_start_us) { /* else it began when it was written (host.h), or one waits, for its pacing or for the peer's window, and it is not the application that pauses */
			burst_begins(tp, s, tp->tcp_mstamp);
			notice_pause(tp, s, tp->tcp_mstamp);
		}
		if (!choose(sk, s))
			return window_min_tso_segs(sk);
		if (!sets_rate(s->algorithm) && anew && window_after_idle(sk, s)) {
			s->gathered.idle_restarts++;
			fair_event(sk, s, CA_EVENT_CWND_RESTART);
		}
	}
	if (s->algorithm == PLAIT_BURST) {
		joins = path_joins(sk, s);
		if (joins)
			path_begins(sk, s);
		if (begins || joins)
			burst_begin(sk, s);
		return burst_min_tso_segs(tp, s);
	}
	if (s->algorithm == PLAIT_BBR)
		return bbr_min_tso_segs(sk, s);
	return window_min_tso_segs(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(plait_sndbuf_expand, struct sock *sk)
{
	struct plait_sock *s = plait_sock(sk);

	return s && sets_rate(s->algorithm) ? 3 : 2; /* paced algorithms keep up to three windows in the queue, as tcp_bbr */
}

SEC(".struct_ops.link")
struct tcp_congestion_ops plait = {
	.init = (void *)plait_init,
	.release = (void *)plait_release,
	.ssthresh = (void *)plait_ssthresh,
	.cong_control = (void *)plait_cong_control,
	.set_state = (void *)plait_set_state,
	.cwnd_event = (void *)plait_cwnd_event,
	.cwnd_event_tx_start = (void *)plait_cwnd_event_tx_start,
	.pkts_acked = (void *)plait_pkts_acked,
	.undo_cwnd = (void *)plait_undo_cwnd,
	.min_tso_segs = (void *)plait_min_tso_segs,
	.sndbuf_expand = (void *)plait_sndbuf_expand,
	.flags = 1, /* TCP_CONG_NON_RESTRICTED: any user may ask for it, in any network namespace */
	.name = "plait",
};

#include "sockops.h"
#include "host.h"

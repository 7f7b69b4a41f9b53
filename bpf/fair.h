/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fair control of sockets whose ACKs come sooner than by themselves, as copies over a quicker path (acks.h). The shorter round trip would make a window grow
 * faster than that of others on the same link. So the window algorithms run in the units of the flow it would be without copies. With r the round trip as it is
 * and lead by how much sooner the copies come,
 *
 *	R = r + lead        window of the algorithm: w = rate * R        window of the socket: W = w * r / R
 *
 * ACKs come as often per second in both, so w, and the rate w / R, grow over time as they would without copies: W by (r/R)^2 of what its ACKs would give. The
 * window is paced: a shorter round trip also shifts the flow's bunches against those of others, and where the queue is short these lose by it.
 *
 * What nobody else is hurt by stays: growth is R/r times as fast, as the shorter round trip has it, while a round trip shows no queue
 *
 *	in slow start, and
 *	after a loss up to the window before it, if the flow then had 7/8 or more of what the path gives (up to twice as fast)
 *
 * Bounds and simulation: docs/ackpath/fairness.md. BBR and burst send at a rate they measure, which copies do not change; they are left alone.
 */
#ifndef PLAIT_FAIR_H
#define PLAIT_FAIR_H

#include "acks.h"
#include "algorithm.h"

enum {
	FAIR_LEAD_MIN_US = 5000,	   /* less is not worth it, and near what hosts delay ACKs by */
	FAIR_LEAD_SHIFT = 3,		   /* an eighth of the round trip: growth would differ by a quarter */
	FAIR_LEAD_MAX_US = 2000000,
	FAIR_FRESH_US = 3 * USEC_PER_SEC, /* a lead is believed as long */
	FAIR_QUEUE_SHIFT = 5,		   /* a queue stands: as HyStart has it, but tighter, and for every packet */
	FAIR_QUEUE_MIN_US = 4000,
	FAIR_QUEUE_MAX_US = 8000,
	FAIR_PACING_PERCENT = 105,
	FAIR_ONE = 256,
	FAIR_MAX_HASTE = 2 * FAIR_ONE, /* after a loss: a newcomer that loses at the same times gets to 1/3 even so, and ends it */
};

struct fair {
	__u64 lead_at_us; /* of the lead in use */
	__u64 acked_us;
	__u64 fastest_Bps; /* at which a train came through: what the path gives */
	__u32 since_us;	   /* between the last two ACKs */
	__u32 silent_us;   /* time with ACKs since the lead was measured */
	__u32 native_us;   /* R when it was */
	/* Windows in the algorithm's units, and what the socket was given for them: if it has another now, the kernel has set it. */
	__u32 cwnd;
	__u32 shown_cwnd;
	__u32 ssthresh;
	__u32 shown_ssthresh;
	__u32 before_loss; /* the algorithm's window before the last reduction */
	__u32 haste_256ths; /* growth not added yet */
	__u32 round_rtt_us; /* longest of this round trip, and of the one before; 0: none yet */
	__u32 round_rtt_past_us;
	__u8 had_most; /* at the last loss the flow had nearly all the path gives */
	__u8 pad[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct plait_ack_native);
} plait_ack_natives SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fair);
} plait_fairs SEC(".maps");

static __always_inline bool is_subflow(struct sock *sk)
{
	return bpf_core_field_exists(((struct tcp_sock *)0)->is_mptcp) && ((struct tcp_sock *)sk)->is_mptcp;
}

/* The state of a socket whose window is under the fair control now. */
static __always_inline struct fair *fair_of(struct sock *sk, const struct plait_sock *s)
{
	if (!s->lead_us || sets_rate(s->algorithm))
		return 0;
	return bpf_sk_storage_get(&plait_fairs, sk, 0, 0);
}

/* w = W * R/r, rounded; and W = w * r/R, so that one after the other changes no W. */
static __always_inline __u32 fair_native(const struct tcp_sock *tp, const struct plait_sock *s, __u32 window)
{
	__u64 rtt_us = max(srtt_us(tp), 1u);

	if (window >= TCP_INFINITE_SSTHRESH)
		return window;
	return min(((__u64)window * (rtt_us + s->lead_us) + rtt_us / 2) / rtt_us, (__u64)TCP_INFINITE_SSTHRESH - 1);
}

static __always_inline __u32 fair_shown(const struct tcp_sock *tp, const struct plait_sock *s, __u32 window)
{
	__u64 rtt_us = max(srtt_us(tp), 1u), native_us = rtt_us + s->lead_us;

	if (window >= TCP_INFINITE_SSTHRESH)
		return window;
	return max((window * rtt_us + native_us / 2) / native_us, 1ULL);
}

/* Before a hook of an algorithm: its windows. */
static __always_inline void fair_begin(struct tcp_sock *tp, const struct plait_sock *s, struct fair *f)
{
	__u32 cwnd = tp->snd_cwnd, ssthresh = tp->snd_ssthresh;

	if (ssthresh != f->shown_ssthresh)
		f->ssthresh = fair_native(tp, s, ssthresh);
	if (cwnd != f->shown_cwnd) /* a recovery ends at ssthresh */
		f->cwnd = cwnd == ssthresh ? f->ssthresh : fair_native(tp, s, cwnd);
	tp->snd_cwnd = f->cwnd;
	tp->snd_ssthresh = f->ssthresh;
}

/* And after it the socket's. */
static __always_inline void fair_end(struct tcp_sock *tp, const struct plait_sock *s, struct fair *f)
{
	f->cwnd = tp->snd_cwnd;
	f->ssthresh = tp->snd_ssthresh;
	f->shown_cwnd = fair_shown(tp, s, f->cwnd);
	f->shown_ssthresh = fair_shown(tp, s, f->ssthresh);
	tp->snd_cwnd = f->shown_cwnd;
	tp->snd_ssthresh = f->shown_ssthresh;
}

/* Copies have begun. In slow start the window stays; else the rate of before does, which the sooner ACKs would raise. */
static __noinline int fair_enter(struct sock *sk, struct plait_sock *s, __u32 lead_us)
{
	struct tcp_sock *tp;
	struct fair *f;
	bool slow;

	if (!sk)
		return 0;
	tp = tcp_sk_mut(sk);
	f = bpf_sk_storage_get(&plait_fairs, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!f)
		return 0;
	slow = in_slow_start(tp);
	*f = (struct fair){ .acked_us = tp->tcp_mstamp };
	s->lead_us = lead_us;
	algorithm_forget_rtt(tp, s); /* between the first copy and now there was none with the lead */
	if (sets_rate(s->algorithm))
		return 0;
	f->cwnd = slow ? fair_native(tp, s, tp->snd_cwnd) : tp->snd_cwnd;
	f->ssthresh = slow ? fair_native(tp, s, tp->snd_ssthresh) : tp->snd_ssthresh;
	tp->snd_cwnd = f->cwnd;
	tp->snd_ssthresh = f->ssthresh;
	fair_end(tp, s, f);
	set_pacing(sk, s, true);
	return 0;
}

/* Copies have ended, or their lead is unknown: the rate stays. The round trip may be what it was without copies by now. */
static __noinline int fair_leave(struct sock *sk, struct plait_sock *s, struct fair *f)
{
	struct tcp_sock *tp;
	__u32 rtt_us;

	if (!sk)
		return 0;
	tp = tcp_sk_mut(sk);
	if (!sets_rate(s->algorithm)) {
		fair_begin(tp, s, f);
		rtt_us = srtt_us(tp);
		s->lead_us = f->native_us > rtt_us ? f->native_us - rtt_us : 0;
		fair_end(tp, s, f);
		set_pacing(sk, s, false);
	}
	s->lead_us = 0;
	s->min_rtt_us = srtt_us(tp);
	s->min_rtt_past_us = 0;
	algorithm_forget_rtt(tp, s);
	return 0;
}

/* Time without ACKs does not age a lead: nothing could be measured. */
static __always_inline void fair_hear(const struct tcp_sock *tp, struct plait_sock *s, struct fair *f, const struct plait_ack_native *n)
{
	__u64 now_us = tp->tcp_mstamp;

	f->since_us = min(now_us - f->acked_us, (__u64)srtt_us(tp)); /* the rest is idle time */
	f->acked_us = now_us;
	s->lead_us = min(max(n->lead_us, 1u), (__u32)FAIR_LEAD_MAX_US);
	if (n->at_us != f->lead_at_us) {
		f->lead_at_us = n->at_us;
		f->native_us = srtt_us(tp) + s->lead_us;
		f->silent_us = 0;
		return;
	}
	f->silent_us += f->since_us;
}

/* No lead for long; or for two round trips, of which the last were as long as without copies. */
static __always_inline bool fair_over(const struct tcp_sock *tp, const struct plait_sock *s, const struct fair *f)
{
	__u32 lead_us = s->lead_us, rtt_us = srtt_us(tp);

	if (f->silent_us > FAIR_FRESH_US || lead_us < FAIR_LEAD_MIN_US / 2 || lead_us < rtt_us >> (FAIR_LEAD_SHIFT + 1))
		return true;
	return f->silent_us > 2 * f->native_us && rtt_us > f->native_us - (lead_us >> 2);
}

static __always_inline void fair_round(struct plait_sock *s, struct fair *f, const struct rate_sample *rs)
{
	long rtt_us = rs->rtt_us;

	if (s->round_start) {
		f->round_rtt_past_us = f->round_rtt_us;
		f->round_rtt_us = 0;
	}
	if (rtt_us > f->round_rtt_us)
		f->round_rtt_us = rtt_us;
	if (s->train_measured)
		f->fastest_Bps = max(f->fastest_Bps, s->dispersion_Bps);
}

/* On every ACK of a subflow of which a lead was ever known. */
static __noinline int fair_update(struct sock *sk, struct plait_sock *s, const struct plait_ack_native *n, const struct rate_sample *rs)
{
	const struct tcp_sock *tp;
	struct fair *f;
	__u32 lead_us;

	if (!sk)
		return 0;
	tp = tcp_sk(sk);
	if (!s->lead_us) {
		lead_us = min(n->lead_us, (__u32)FAIR_LEAD_MAX_US);
		if ((__s64)(tp->tcp_mstamp - n->at_us) <= FAIR_FRESH_US && lead_us >= FAIR_LEAD_MIN_US && lead_us >= srtt_us(tp) >> FAIR_LEAD_SHIFT &&
		    ca_state(sk) <= TCP_CA_Disorder)
			fair_enter(sk, s, lead_us);
		return 0;
	}
	f = bpf_sk_storage_get(&plait_fairs, sk, 0, 0);
	if (!f)
		return 0;
	fair_hear(tp, s, f, n);
	fair_round(s, f, rs);
	if (fair_over(tp, s, f))
		fair_leave(sk, s, f);
	return 0;
}

/* In the last round trip and the one at work no packet saw more than a bit of a queue. */
static __always_inline bool fair_quiet(const struct plait_sock *s, const struct fair *f)
{
	__u32 floor_us = min_rtt_us(s), bound_us = min(max(floor_us >> FAIR_QUEUE_SHIFT, (__u32)FAIR_QUEUE_MIN_US), (__u32)FAIR_QUEUE_MAX_US);

	return f->round_rtt_past_us && max(f->round_rtt_us, f->round_rtt_past_us) <= floor_us + bound_us;
}

/* How much faster than without copies the window may grow now, in 1/256. */
static __always_inline __u32 fair_haste(const struct tcp_sock *tp, const struct plait_sock *s, const struct fair *f)
{
	__u32 rtt_us = max(srtt_us(tp), 1u);
	__u32 haste = (__u64)(rtt_us + s->lead_us) * FAIR_ONE / rtt_us;

	if (!fair_quiet(s, f))
		return FAIR_ONE;
	if (in_slow_start(tp))
		return haste;
	return f->had_most && tp->snd_cwnd < f->before_loss ? min(haste, (__u32)FAIR_MAX_HASTE) : FAIR_ONE;
}

static __noinline int fair_cong_avoid(struct sock *sk, struct plait_sock *s, struct fair *f, __u32 acked)
{
	struct tcp_sock *tp;
	__u32 haste, before, after, bound;
	bool limited, full;
	__u64 more;

	if (!sk || !f)
		return 0;
	tp = tcp_sk_mut(sk);
	full = BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited);
	limited = cwnd_limited(tp);
	fair_begin(tp, s, f);
	haste = fair_haste(tp, s, f);
	before = tp->snd_cwnd;
	bound = before < tp->snd_ssthresh ? tp->snd_ssthresh : max(f->before_loss, before);
	if (haste > FAIR_ONE)
		algorithm_hasten(s, (__u64)f->since_us * (haste - FAIR_ONE) / FAIR_ONE);
	if (limited && !full)
		slow_start(tp, acked); /* the algorithms would compare their window with what was in flight, which is the socket's */
	else
		algorithm_cong_avoid(sk, s, acked);
	after = tp->snd_cwnd;
	if (haste > FAIR_ONE && after > before && after < bound) {
		more = (__u64)(after - before) * (haste - FAIR_ONE) + f->haste_256ths;
		f->haste_256ths = more % FAIR_ONE;
		tp->snd_cwnd = min(after + more / FAIR_ONE, (__u64)bound);
	}
	fair_end(tp, s, f);
	return 0;
}

static __always_inline __u32 fair_pacing_percent(const struct tcp_sock *tp)
{
	return in_slow_start(tp) ? 200 : FAIR_PACING_PERCENT;
}

/* The window after a loss, and what the flow had of the path before it. */
static __noinline __u32 fair_ssthresh(struct sock *sk, struct plait_sock *s, struct fair *f)
{
	struct tcp_sock *tp;
	__u64 rate_Bps;

	if (!sk || !f)
		return 2;
	tp = tcp_sk_mut(sk);
	rate_Bps = max(s->rate_Bps, s->rate_round_Bps);
	fair_begin(tp, s, f);
	f->before_loss = tp->snd_cwnd;
	f->had_most = f->fastest_Bps && rate_Bps >= f->fastest_Bps - (f->fastest_Bps >> 3);
	f->haste_256ths = 0;
	tp->snd_ssthresh = algorithm_ssthresh(sk, s);
	fair_end(tp, s, f);
	return f->shown_ssthresh;
}

/* The loss was none. */
static __noinline __u32 fair_undo_cwnd(struct sock *sk, struct plait_sock *s, struct fair *f)
{
	struct tcp_sock *tp;

	if (!sk || !f)
		return 2;
	tp = tcp_sk_mut(sk);
	fair_begin(tp, s, f);
	algorithm_undo_cwnd(sk, s); /* takes back what the algorithm has noted; its window is below */
	tp->snd_cwnd = max(tp->snd_cwnd, f->before_loss);
	fair_end(tp, s, f);
	return f->shown_cwnd;
}

/* A hook that may set a window. */
static __always_inline void fair_event(struct sock *sk, struct plait_sock *s, enum tcp_ca_event event)
{
	struct tcp_sock *tp = tcp_sk_mut(sk);
	struct fair *f = fair_of(sk, s);

	if (f)
		fair_begin(tp, s, f);
	algorithm_event(sk, s, event);
	if (f)
		fair_end(tp, s, f);
}

static __always_inline void fair_pkts_acked(struct sock *sk, struct plait_sock *s, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_sk_mut(sk);
	struct fair *f = fair_of(sk, s);

	if (f)
		fair_begin(tp, s, f);
	algorithm_pkts_acked(sk, s, sample);
	if (f)
		fair_end(tp, s, f);
}

#endif

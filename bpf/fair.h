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
 * At all other times copies are closed out: timed, and not given to the socket, which is then one as any. Even with the right window a flow of another round trip hurts
 * others where the queue is short: its packets come between theirs, which come in trains. Copies are let in and closed out at an unchanged rate: the window
 * is set for the round trip to come before its first ACK, and what is more of it leaves paced.
 *
 * Bounds and simulation: docs/ackpath/fairness.md. BBR and burst send at a rate they measure, so their windows are left alone. But with
 * copies all the time BBR takes from another BBR where the queue is short, so it has them in STARTUP alone.
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
	FAIR_RTO_MIN_US = 200000, /* the kernel's, which is added to the smoothed round trip at least */
	FAIR_USELESS_ROUNDS = 2, /* round trips without haste, after which copies are closed out */
	FAIR_OPENING_ROUNDS = 2, /* for which the smoothed round trip is still the one without copies */
	FAIR_MAX_HASTE = 2 * FAIR_ONE, /* after a loss: a newcomer that loses at the same times gets to 1/3 even so, and ends it */
};

struct fair {
	__u64 lead_at_us; /* of the lead in use */
	__u64 acked_us;
	__u64 fastest_Bps; /* at which a train came through: what the path gives */
	__u64 closed_us;   /* when copies were closed out */
	__u32 since_us;	   /* between the last two ACKs */
	__u32 silent_us;   /* time with ACKs since the lead was measured */
	__u32 native_us;   /* R when it was */
	__u32 useless_us;  /* time with ACKs since growth was hastened, or copies were let in */
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
	__u8 opening;  /* round trips to go in which the smoothed one is not to be believed */
	__u8 pad[6];
	__u32 least_rtt_us; /* least round trip, and the lead when it became that */
	__u32 least_lead_us;
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

/* The state of a socket whose window is under the fair control now. */
static __always_inline struct fair *fair_of(struct sock *sk, const struct plait_sock *s)
{
	if (!s->lead_us || sets_rate(s->algorithm))
		return 0;
	return bpf_sk_storage_get(&plait_fairs, sk, 0, 0);
}

/* r; the kernel's smoothed one is late after copies have been let in. */
static __always_inline __u32 fair_rtt_us(const struct tcp_sock *tp, const struct plait_sock *s, const struct fair *f)
{
	if (f->opening && f->native_us > s->lead_us)
		return min(f->native_us - s->lead_us, max(srtt_us(tp), 1u));
	return max(srtt_us(tp), 1u);
}

/* w = W * R/r, rounded; and W = w * r/R, so that one after the other changes no W. */
static __always_inline __u32 fair_native(const struct tcp_sock *tp, const struct plait_sock *s, const struct fair *f, __u32 window)
{
	__u64 rtt_us = fair_rtt_us(tp, s, f);

	if (window >= TCP_INFINITE_SSTHRESH)
		return window;
	return min(((__u64)window * (rtt_us + s->lead_us) + rtt_us / 2) / rtt_us, (__u64)TCP_INFINITE_SSTHRESH - 1);
}

static __always_inline __u32 fair_shown(const struct tcp_sock *tp, const struct plait_sock *s, const struct fair *f, __u32 window)
{
	__u64 rtt_us = fair_rtt_us(tp, s, f), native_us = rtt_us + s->lead_us;

	if (window >= TCP_INFINITE_SSTHRESH)
		return window;
	return max((window * rtt_us + native_us / 2) / native_us, 1ULL);
}

/* Before a hook of an algorithm: its windows. */
static __always_inline void fair_begin(struct tcp_sock *tp, const struct plait_sock *s, struct fair *f)
{
	__u32 cwnd = tp->snd_cwnd, ssthresh = tp->snd_ssthresh;

	if (ssthresh != f->shown_ssthresh)
		f->ssthresh = fair_native(tp, s, f, ssthresh);
	if (cwnd != f->shown_cwnd) /* a recovery ends at ssthresh */
		f->cwnd = cwnd == ssthresh ? f->ssthresh : fair_native(tp, s, f, cwnd);
	tp->snd_cwnd = f->cwnd;
	tp->snd_ssthresh = f->ssthresh;
}

/* And after it the socket's. */
static __always_inline void fair_end(struct tcp_sock *tp, const struct plait_sock *s, struct fair *f)
{
	f->cwnd = tp->snd_cwnd;
	f->ssthresh = tp->snd_ssthresh;
	f->shown_cwnd = fair_shown(tp, s, f, f->cwnd);
	f->shown_ssthresh = fair_shown(tp, s, f, f->ssthresh);
	tp->snd_cwnd = f->shown_cwnd;
	tp->snd_ssthresh = f->shown_ssthresh;
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
	__u32 rtt_us = fair_rtt_us(tp, s, f);
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
	if (haste > FAIR_ONE) {
		f->useless_us = 0;
		algorithm_hasten(s, (__u64)f->since_us * (haste - FAIR_ONE) / FAIR_ONE);
	}
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

/* Paces at the algorithm's rate, where copies or smooth want it. After copies have been closed out the smoothed round trip is late, for as long. */
static __noinline int fair_pace(struct sock *sk, struct plait_sock *s, bool smooth)
{
	const struct tcp_sock *tp;
	struct fair *f;

	if (!sk)
		return 0;
	tp = tcp_sk(sk);
	if (s->lead_us) {
		window_pacing_rate(sk, in_slow_start(tp) ? 200 : FAIR_PACING_PERCENT, tp->srtt_us);
		return 0;
	}
	f = bpf_sk_storage_get(&plait_fairs, sk, 0, 0);
	if (f && tp->tcp_mstamp - f->closed_us < 2 * f->native_us) {
		window_pacing_rate(sk, FAIR_PACING_PERCENT, max(tp->srtt_us, f->native_us << 3));
		return 0;
	}
	set_pacing(sk, s, smooth);
	window_pacing_rate(sk, window_pacing_percent(sk), tp->srtt_us);
	return 0;
}

/* The window after a loss, and what the flow had of the path before it. */
static __noinline __u32 fair_ssthresh(struct sock *sk, struct plait_sock *s, struct fair *f)
{
	struct tcp_sock *tp;
	__u64 rate_Bps;
	__u32 ssthresh;

	if (!sk || !f)
		return 2;
	tp = tcp_sk_mut(sk);
	rate_Bps = max(s->rate_Bps, s->rate_round_Bps);
	if (s->lead_us)
		fair_begin(tp, s, f);
	f->useless_us = 0;
	f->before_loss = tp->snd_cwnd;
	f->had_most = f->fastest_Bps && rate_Bps >= f->fastest_Bps - (f->fastest_Bps >> 3);
	f->haste_256ths = 0;
	ssthresh = algorithm_ssthresh(sk, s);
	if (!s->lead_us)
		return ssthresh;
	tp->snd_ssthresh = ssthresh;
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

/*
 * The socket leaves the fair control, and its ACKs come by themselves from now on. Its window is too small for that: it may get to the algorithm's by slow start, in
 * step with ACKs, for nobody paces it any more.
 */
static __always_inline void fair_leave(struct sock *sk, const struct plait_sock *s)
{
	struct tcp_sock *tp = tcp_sk_mut(sk);
	struct fair *f = fair_of(sk, s);
	__u32 cwnd = tp->snd_cwnd;

	if (!f)
		return;
	fair_begin(tp, s, f);
	if (!in_cwnd_reduction(ca_state(sk))) /* a recovery ends at ssthresh */
		tp->snd_ssthresh = max(tp->snd_ssthresh, tp->snd_cwnd);
	tp->snd_cwnd = cwnd;
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

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When a socket has copies of its ACKs, and the fair control (fair.h): while they make its window grow sooner, and nobody else is hurt by it. */
#ifndef PLAIT_GATE_H
#define PLAIT_GATE_H

#include "fair.h"

/* A round trip that was seen without copies, as it is with them; 0: unknown. */
static __always_inline __u32 fair_sooner(__u32 rtt_us, __u32 lead_us, bool known)
{
	return known && rtt_us > lead_us ? rtt_us - lead_us : 0;
}

/*
 * Copies are let in now, or have begun before the first lead was known. Then, in slow start the window stays; else the rate of before does, which the sooner
 * ACKs would raise.
 */
static __noinline int fair_enter(struct sock *sk, struct plait_sock *s, struct plait_ack_native *n, __u32 lead_us)
{
	struct tcp_sock *tp;
	struct fair *f;
	bool grown;

	if (!sk)
		return 0;
	tp = tcp_sk_mut(sk);
	f = bpf_sk_storage_get(&plait_fairs, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!f || !n)
		return 0;
	f->acked_us = tp->tcp_mstamp;
	f->lead_at_us = 0;
	f->silent_us = f->useless_us = f->haste_256ths = 0;
	f->opening = n->closed ? FAIR_OPENING_ROUNDS : 0;
	f->round_rtt_us = fair_sooner(f->round_rtt_us, lead_us, n->closed);
	f->round_rtt_past_us = fair_sooner(f->round_rtt_past_us, lead_us, n->closed);
	if (n->closed) {
		s->min_rtt_us = fair_sooner(min_rtt_us(s), lead_us, true);
		s->min_rtt_past_us = 0;
	}
	f->native_us = srtt_us(tp);
	grown = !n->closed && in_slow_start(tp); /* its window is one of the shorter round trip */
	n->closed = 0;
	s->lead_us = f->least_lead_us = lead_us;
	f->least_rtt_us = min_rtt_us(s);
	algorithm_forget_rtt(s, srtt_us(tp));
	if (sets_rate(s->algorithm))
		return 0;
	f->cwnd = grown ? fair_native(tp, s, f, tp->snd_cwnd) : tp->snd_cwnd;
	f->ssthresh = grown ? fair_native(tp, s, f, tp->snd_ssthresh) : tp->snd_ssthresh;
	tp->snd_cwnd = f->cwnd;
	tp->snd_ssthresh = f->ssthresh;
	fair_end(tp, s, f);
	set_pacing(sk, s, true);
	return 0;
}

/*
 * Copies are of no more use, have ended, or come by an unknown time sooner: none is used that is not corrected for. Until ACKs come again, by themselves, the window that is
 * now the algorithm's leaves at the rate of before. The round trip may be what it is without copies by now; R is as it was when a lead was last measured.
 */
static __noinline int fair_close(struct sock *sk, struct plait_sock *s, struct plait_ack_native *n, struct fair *f)
{
	struct tcp_sock *tp;

	if (!sk || !n || !f)
		return 0;
	tp = tcp_sk_mut(sk);
	if (s->algorithm != PLAIT_BURST) /* which sets its window anew */
		fair_begin(tp, s, f);
	n->closed = 1;
	f->closed_us = tp->tcp_mstamp;
	f->round_rtt_us = f->round_rtt_past_us = 0;
	/*
	 * Copies that come late have lessened the lead by now, and an uplink that was full may have made it longer; the least round trip was seen with neither. Too little would stay, and
	 * too much until an ACK comes without a queue.
	 */
	s->min_rtt_us = min_rtt_us(s) + f->least_lead_us;
	s->min_rtt_past_us = 0;
	s->lead_us = 0;
	algorithm_forget_rtt(s, s->min_rtt_us);
	return 0;
}

/* Time without ACKs does not age a lead, nor make copies useless: nothing could be measured. */
static __always_inline void fair_hear(const struct tcp_sock *tp, struct plait_sock *s, struct fair *f, const struct plait_ack_native *n)
{
	__u64 now_us = tp->tcp_mstamp;

	f->since_us = min(now_us - f->acked_us, (__u64)srtt_us(tp)); /* the rest is idle time */
	f->acked_us = now_us;
	f->useless_us = f->round_rtt_past_us ? min((__u64)f->useless_us + f->since_us, (__u64)TCP_INFINITE_SSTHRESH) : 0; /* whether there is a queue is not known at first */
	s->lead_us = min(max(n->lead_us, 1u), (__u32)FAIR_LEAD_MAX_US);
	if (min_rtt_us(s) != f->least_rtt_us) {
		f->least_rtt_us = min_rtt_us(s);
		f->least_lead_us = s->lead_us;
	}
	if (n->at_us != f->lead_at_us) {
		f->lead_at_us = n->at_us;
		f->native_us = fair_rtt_us(tp, s, f) + s->lead_us;
		f->silent_us = 0;
		return;
	}
	f->silent_us += f->since_us;
}

/*
 * No lead for long; or none and no copies for two round trips, of which the last were as long as without copies on the empty path: a queue that was there with the last lead has
 * drained since. While copies come it is their twins that do not, and a longer round trip a queue.
 */
static __always_inline bool fair_over(const struct tcp_sock *tp, const struct plait_sock *s, const struct fair *f, const struct plait_ack_native *n)
{
	__u32 lead_us = s->lead_us, rtt_us = srtt_us(tp);

	if (f->silent_us > FAIR_FRESH_US || lead_us < FAIR_LEAD_MIN_US / 2 || lead_us < rtt_us >> (FAIR_LEAD_SHIFT + 1))
		return true;
	if (f->silent_us <= 2 * f->native_us || (__s64)(tp->tcp_mstamp - n->copied_us) <= f->native_us)
		return false;
	return rtt_us > min_rtt_us(s) + lead_us - (lead_us >> 2);
}

static __always_inline void fair_round(struct plait_sock *s, struct fair *f, const struct rate_sample *rs)
{
	long rtt_us = rs->rtt_us;

	if (s->round_start) {
		f->round_rtt_past_us = f->round_rtt_us;
		f->round_rtt_us = 0;
		if (f->opening)
			f->opening--;
	}
	if (rtt_us > f->round_rtt_us)
		f->round_rtt_us = rtt_us;
	if (s->train_measured)
		f->fastest_Bps = max(f->fastest_Bps, s->dispersion_Bps);
}

/* A lead is known, and worth a correction. */
static __always_inline bool fair_worth(const struct tcp_sock *tp, const struct plait_ack_native *n)
{
	return (__s64)(tp->tcp_mstamp - n->at_us) <= FAIR_FRESH_US && n->lead_us >= FAIR_LEAD_MIN_US && n->lead_us >= srtt_us(tp) >> FAIR_LEAD_SHIFT;
}

/* Copies are closed out, or their lead was not known so far. What is not corrected for is not used: an eighth of the round trip, for long, is two thirds of a competitor's share. */
static __noinline int fair_wait(struct sock *sk, struct plait_sock *s, struct plait_ack_native *n, const struct rate_sample *rs)
{
	const struct tcp_sock *tp;
	struct fair *f;

	if (!sk || !n || !rs)
		return 0;
	tp = tcp_sk(sk);
	f = bpf_sk_storage_get(&plait_fairs, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!f)
		return 0;
	fair_round(s, f, rs);
	if (!fair_worth(tp, n))
		n->closed = 1;
	if (!fair_worth(tp, n) || n->at_us < f->closed_us || ca_state(sk) > TCP_CA_Disorder)
		return 0; /* a lead of before they were closed out may be that of copies that have ended */
	if (!n->closed || s->algorithm == PLAIT_BURST)
		return fair_enter(sk, s, n, min(n->lead_us, (__u32)FAIR_LEAD_MAX_US));
	if (n->lead_us <= FAIR_LEAD_MAX_US && fair_quiet(s, f) && (algorithm_opens(tp, s) || (!sets_rate(s->algorithm) && f->had_most && tp->snd_cwnd < f->before_loss)))
		return fair_enter(sk, s, n, n->lead_us);
	return 0;
}

/* Copies can be closed out only if the time without ACKs that follows is no timeout. BBR, where the queue is short, is in recovery nearly all the time. */
static __always_inline bool fair_useless(struct sock *sk, const struct plait_sock *s, const struct fair *f)
{
	__u32 rto_us = srtt_us(tcp_sk(sk)) + FAIR_RTO_MIN_US, most = s->algorithm == PLAIT_BBR ? TCP_CA_Recovery : TCP_CA_Disorder;

	return s->algorithm != PLAIT_BURST && f->useless_us / FAIR_USELESS_ROUNDS > f->native_us && ca_state(sk) <= most && s->lead_us < rto_us - (rto_us >> 2);
}

/* On every ACK of a subflow of which a lead was ever known. */
static __noinline int fair_update(struct sock *sk, struct plait_sock *s, struct plait_ack_native *n, const struct rate_sample *rs)
{
	const struct tcp_sock *tp;
	struct fair *f;

	if (!sk || !n)
		return 0;
	if (!s->lead_us)
		return fair_wait(sk, s, n, rs);
	tp = tcp_sk(sk);
	f = bpf_sk_storage_get(&plait_fairs, sk, 0, 0);
	if (!f)
		return 0;
	fair_hear(tp, s, f, n);
	fair_round(s, f, rs);
	if (s->algorithm == PLAIT_BBR && algorithm_opens(tp, s) && fair_quiet(s, f))
		f->useless_us = 0; /* of windows fair_cong_avoid() says so */
	if (fair_over(tp, s, f, n) || fair_useless(sk, s, f))
		fair_close(sk, s, n, f);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Vegas: the window is right when a few packets stand in queues. Once per round trip, with the least round trip of it,
 *
 *	diff = w * (RTT - baseRTT) / baseRTT     packets in queues
 *	diff < 2: w + 1     diff > 4: w - 1     else w stays
 *
 * and slow start ends when diff exceeds 1 (alpha 2, beta 4, gamma 1 packets: the paper's range, and Linux's). Rounds with fewer
 * than three samples of the RTT are Reno's, for then a delayed ACK may be all that was seen. Losses are Reno's.
 *
 * As in the kernel slow start doubles in every round trip, not in every other one, and everything known is forgotten when
 * sending starts after an idle time; baseRTT is otherwise the minimum of the connection.
 *
 * L. Brakmo, L. Peterson, TCP Vegas: End to End Congestion Avoidance on a Global Internet, IEEE JSAC 13(8), 1995.
 */
#ifndef PLAIT_CC_VEGAS_H
#define PLAIT_CC_VEGAS_H

#include "reno.h"

enum {
	VEGAS_ALPHA_PACKETS = 2,
	VEGAS_BETA_PACKETS = 4,
	VEGAS_GAMMA_PACKETS = 1,
	VEGAS_MIN_SAMPLES = 3,
	VEGAS_NO_RTT_US = 0x7fffffff,
};

struct vegas {
	__u64 round_us;	 /* start of the round */
	__u32 round_end; /* sequence number whose ACK ends the round */
	__u32 samples;
	__u32 rtt_us; /* least of this round */
	__u32 base_rtt_us;
	__u32 on; /* 0: Reno, outside the state Open */
	__u32 pad;
};

_Static_assert(sizeof(struct vegas) <= PLAIT_PRIVATE_WORDS * 8, "private state");

static __always_inline void vegas_round(const struct tcp_sock *tp, struct vegas *v)
{
	v->round_us = tp->tcp_mstamp;
	v->round_end = tp->snd_nxt;
	v->samples = 0;
	v->rtt_us = VEGAS_NO_RTT_US;
}

static __always_inline void vegas_init(struct sock *sk, struct plait_sock *s)
{
	struct vegas *v = (struct vegas *)s->private;

	v->base_rtt_us = VEGAS_NO_RTT_US;
	v->on = 1;
	vegas_round(tcp_sk(sk), v);
}

static __always_inline void vegas_set_state(struct sock *sk, struct plait_sock *s, __u8 state)
{
	struct vegas *v = (struct vegas *)s->private;

	v->on = state == TCP_CA_Open;
	if (v->on)
		vegas_round(tcp_sk(sk), v);
}

static __always_inline void vegas_event(struct sock *sk, struct plait_sock *s, enum tcp_ca_event event)
{
	if (event == CA_EVENT_CWND_RESTART || event == CA_EVENT_TX_START)
		vegas_init(sk, s);
}

static __always_inline void vegas_pkts_acked(struct sock *sk, struct plait_sock *s, const struct ack_sample *sample)
{
	struct vegas *v = (struct vegas *)s->private;
	__s32 sampled_us = sampled_rtt_us(s, sample);
	__u32 rtt_us;

	if (sampled_us < 0)
		return;
	rtt_us = (__u32)sampled_us + 1; /* never 0: it is a divisor */
	v->base_rtt_us = min(v->base_rtt_us, rtt_us);
	v->rtt_us = min(v->rtt_us, rtt_us);
	v->samples++;
}

/* The end of a round whose round trip is known. */
static __noinline int vegas_adjust(struct tcp_sock *tp, const struct vegas *v, __u32 acked)
{
	__u32 cwnd = tp->snd_cwnd, base_us = max(v->base_rtt_us, 1u), rtt_us = max(v->rtt_us, base_us); /* less: from before round trips were forgotten */
	__u64 diff = (__u64)cwnd * (rtt_us - base_us) / base_us;

	if (in_slow_start(tp)) {
		if (diff > VEGAS_GAMMA_PACKETS) {
			/* what fits without a queue, and one packet */
			tp->snd_cwnd = min(cwnd, (__u32)((__u64)cwnd * base_us / rtt_us) + 1);
			tp->snd_ssthresh = min(tp->snd_ssthresh, tp->snd_cwnd);
		} else {
			slow_start(tp, acked);
		}
	} else if (diff > VEGAS_BETA_PACKETS) {
		tp->snd_cwnd = cwnd - 1;
		tp->snd_ssthresh = min(tp->snd_ssthresh, cwnd - 1);
	} else if (diff < VEGAS_ALPHA_PACKETS) {
		tp->snd_cwnd = cwnd + 1;
	}
	tp->snd_cwnd = min(max(tp->snd_cwnd, 2u), tp->snd_cwnd_clamp);
	tp->snd_ssthresh = remembered_ssthresh((struct sock *)tp, tp);
	return 0;
}

static __always_inline void vegas_cong_avoid(struct tcp_sock *tp, struct plait_sock *s, __u32 acked)
{
	struct vegas *v = (struct vegas *)s->private;

	if (!v->on) {
		reno_cong_avoid(tp, acked);
		return;
	}
	if ((__s32)(tp->snd_una - v->round_end) <= 0 || (s->lead_us && tp->tcp_mstamp - v->round_us < srtt_us(tp) + s->lead_us)) {
		if (in_slow_start(tp))
			slow_start(tp, acked);
		return;
	}
	if (v->samples < VEGAS_MIN_SAMPLES)
		reno_cong_avoid(tp, acked);
	else
		vegas_adjust(tp, v, acked);
	vegas_round(tp, v);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The algorithms behind one set of hooks. A file under cc/ has the hooks its algorithm needs, in the shape of the kernel's
 * own modules; here is who has which. burst and bbr set rate and window themselves on every ACK.
 */
#ifndef PLAIT_ALGORITHM_H
#define PLAIT_ALGORITHM_H

#include "cc/bbr.h"
#include "cc/bic.h"
#include "cc/burst.h"
#include "cc/cubic.h"
#include "cc/highspeed.h"
#include "cc/htcp.h"
#include "cc/hybla.h"
#include "cc/reno.h"
#include "cc/scalable.h"
#include "cc/vegas.h"
#include "cc/westwood.h"

/* A switch keeps cwnd and ssthresh: no init sets either, but hybla's of a connection that has sent nothing. */
static __always_inline void algorithm_init(struct sock *sk, struct plait_sock *s)
{
	for (int i = 0; i < PLAIT_PRIVATE_WORDS; i++)
		s->private[i] = 0;
	switch (s->algorithm) {
	case PLAIT_CUBIC: cubic_init(sk, s); break;
	case PLAIT_BIC: bic_init(sk, s); break;
	case PLAIT_HTCP: htcp_init(sk, s); break;
	case PLAIT_HYBLA: hybla_init(sk, s); break;
	case PLAIT_VEGAS: vegas_init(sk, s); break;
	case PLAIT_WESTWOOD: westwood_init(sk, s); break;
	case PLAIT_BBR: bbr_init(sk, s); break;
	case PLAIT_BURST: burst_init(sk, s); break;
	}
}

static __always_inline __u32 algorithm_ssthresh(struct sock *sk, struct plait_sock *s)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	switch (s->algorithm) {
	case PLAIT_CUBIC: return cubic_ssthresh(tp, s);
	case PLAIT_BIC: return bic_ssthresh(tp, s);
	case PLAIT_HIGHSPEED: return highspeed_ssthresh(tp, s);
	case PLAIT_HTCP: return htcp_ssthresh(tp, s);
	case PLAIT_SCALABLE: return scalable_ssthresh(tp);
	case PLAIT_BBR: return bbr_ssthresh(tp, s);
	case PLAIT_BURST: return burst_ssthresh(tp, s);
	default: return reno_ssthresh(tp);
	}
}

static __always_inline __u32 algorithm_undo_cwnd(struct sock *sk, struct plait_sock *s)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	switch (s->algorithm) {
	case PLAIT_HTCP: return htcp_undo_cwnd(tp, s);
	case PLAIT_BBR: return bbr_undo_cwnd(tp, s);
	default: return reno_undo_cwnd(tp);
	}
}

static __always_inline void algorithm_set_state(struct sock *sk, struct plait_sock *s, __u8 state)
{
	switch (s->algorithm) {
	case PLAIT_CUBIC: cubic_set_state(sk, s, state); break;
	case PLAIT_BIC: bic_set_state(sk, s, state); break;
	case PLAIT_HTCP: htcp_set_state(sk, s, state); break;
	case PLAIT_HYBLA: hybla_set_state(sk, s, state); break;
	case PLAIT_VEGAS: vegas_set_state(sk, s, state); break;
	case PLAIT_BBR: bbr_set_state(sk, s, state); break;
	}
}

static __always_inline void algorithm_event(struct sock *sk, struct plait_sock *s, enum tcp_ca_event event)
{
	switch (s->algorithm) {
	case PLAIT_CUBIC: cubic_event(sk, s, event); break;
	case PLAIT_VEGAS: vegas_event(sk, s, event); break;
	case PLAIT_WESTWOOD: westwood_event(sk, s, event); break;
	case PLAIT_BBR: bbr_event(sk, s, event); break;
	}
}

static __always_inline void algorithm_pkts_acked(struct sock *sk, struct plait_sock *s, const struct ack_sample *sample)
{
	switch (s->algorithm) {
	case PLAIT_CUBIC: cubic_pkts_acked(sk, s, sample); break;
	case PLAIT_BIC: bic_pkts_acked(sk, s, sample); break;
	case PLAIT_HTCP: htcp_pkts_acked(sk, s, sample); break;
	case PLAIT_VEGAS: vegas_pkts_acked(sk, s, sample); break;
	case PLAIT_WESTWOOD: westwood_pkts_acked(sk, s, sample); break;
	}
}

static __always_inline void algorithm_cong_avoid(struct sock *sk, struct plait_sock *s, __u32 acked)
{
	struct tcp_sock *tp = tcp_sk_mut(sk);

	switch (s->algorithm) {
	case PLAIT_CUBIC: cubic_cong_avoid(tp, s, acked); break;
	case PLAIT_BIC: bic_cong_avoid(tp, s, acked); break;
	case PLAIT_HIGHSPEED: highspeed_cong_avoid(tp, s, acked); break;
	case PLAIT_HTCP: htcp_cong_avoid(tp, s, acked); break;
	case PLAIT_HYBLA: hybla_cong_avoid(tp, s, acked); break;
	case PLAIT_SCALABLE: scalable_cong_avoid(tp, acked); break;
	case PLAIT_VEGAS: vegas_cong_avoid(tp, s, acked); break;
	default: reno_cong_avoid(tp, acked); break;
	}
}

/* Round trips are no longer what they were, but rtt_us for now: their extremes are found anew. */
static __always_inline void algorithm_forget_rtt(struct plait_sock *s, __u32 rtt_us)
{
	switch (s->algorithm) {
	case PLAIT_CUBIC: ((struct cubic *)s->private)->min_rtt_us = 0; break;
	case PLAIT_HTCP: ((struct htcp *)s->private)->min_rtt_us = ((struct htcp *)s->private)->max_rtt_us = 0; break;
	case PLAIT_HYBLA: ((struct hybla *)s->private)->rho_8ths = 0; break;
	case PLAIT_VEGAS: ((struct vegas *)s->private)->base_rtt_us = VEGAS_NO_RTT_US; break;
	case PLAIT_WESTWOOD: ((struct westwood *)s->private)->reset_min_rtt = 1; break;
	case PLAIT_BBR: ((struct bbr *)s->private)->min_rtt_us = rtt_us; break;
	}
}

/* Lets time that a loss is ago pass faster, for those who grow by it. */
static __always_inline void algorithm_hasten(struct plait_sock *s, __u32 us)
{
	struct cubic *c = (struct cubic *)s->private;

	if (s->algorithm == PLAIT_CUBIC && c->epoch_us)
		c->epoch_us -= us;
	else if (s->algorithm == PLAIT_HTCP)
		((struct htcp *)s->private)->loss_us -= us;
}

static __always_inline bool sets_rate(__u8 algorithm)
{
	return algorithm == PLAIT_BBR || algorithm == PLAIT_BURST;
}

/* The flow does not know yet what the path takes, and doubles what it sends: slow start, or BBR's STARTUP. */
static __always_inline bool algorithm_opens(const struct tcp_sock *tp, const struct plait_sock *s)
{
	return s->algorithm == PLAIT_BBR ? !((const struct bbr *)s->private)->full_bw_reached : in_slow_start(tp);
}

#endif

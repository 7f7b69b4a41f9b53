/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hybla: a connection over a long path (a satellite) grows by the clock as one over 25 ms would. With rho = RTT / 25 ms, at
 * least 1, every ACK adds
 *
 *	slow start:            2^rho - 1
 *	congestion avoidance:  rho^2 / w
 *
 * packets; Reno is rho = 1, and its halving after a loss stays. rho comes from the least smoothed round trip, so that a
 * standing queue does not make the connection more aggressive. It is kept in eighths, windows in 1/128 packets. As in the
 * kernel the increase is for each ACK, and outside the state Open (loss, reordering) it is Reno's.
 *
 * A connection that has sent nothing begins with rho packets instead of ten, as the kernel's module does; a switch keeps its
 * window.
 *
 * C. Caini, R. Firrincieli, TCP Hybla: a TCP Enhancement for Heterogeneous Networks, Int. J. Satellite Communications 22, 2004.
 */
#ifndef PLAIT_CC_HYBLA_H
#define PLAIT_CC_HYBLA_H

#include "reno.h"

enum {
	HYBLA_REFERENCE_RTT_US = 25000, /* the paper's RTT0: a terrestrial path */
	HYBLA_PACKET = 128,		/* a packet, in the unit of fractions */
	HYBLA_MAX_DOUBLINGS = 16,	/* rho above which slow start no longer speeds up: 400 ms; 2^16 packets are any window */
	HYBLA_MAX_CWND_PACKETS = 65535,
};

/*
 * 128 * 2^(i/8) in byte i: 128, 139, 152, 165, 181, 197, 215, 234. No array: clang puts constants of just 8 bytes into a section
 * of their own (.rodata.cst8), which BTF does not describe and loaders refuse.
 */
#define HYBLA_POWERS_128THS 0xead7c5b5a5988b80ULL

struct hybla {
	__u32 min_srtt_8ths_us; /* in the unit of tp->srtt_us; 0: not known yet */
	__u32 rho_8ths;
	__u32 fraction_128ths; /* of a packet, not added yet */
	__u8 reno;	       /* 1: the state is not Open */
	__u8 pad[3];
};

_Static_assert(sizeof(struct hybla) <= PLAIT_PRIVATE_WORDS * 8, "private state");

/* No smoothed round trip is shorter than every single one. When copies of ACKs have been closed out, tp->srtt_us is for a while: it is of the copies. */
static __always_inline void hybla_measure(const struct tcp_sock *tp, const struct plait_sock *s, struct hybla *h)
{
	__u32 srtt_8ths_us = tp->srtt_us ? max(tp->srtt_us, 8 * min_rtt_us(s)) + 8 * s->lead_us : 0;

	if (h->rho_8ths && (!srtt_8ths_us || (h->min_srtt_8ths_us && srtt_8ths_us >= h->min_srtt_8ths_us)))
		return;
	h->min_srtt_8ths_us = srtt_8ths_us;
	h->rho_8ths = max(srtt_8ths_us / HYBLA_REFERENCE_RTT_US, 8u);
}

static __always_inline void hybla_init(struct sock *sk, struct plait_sock *s)
{
	struct hybla *h = (struct hybla *)s->private;
	struct tcp_sock *tp = tcp_sk_mut(sk);

	h->reno = ca_state(sk) != TCP_CA_Open;
	hybla_measure(tp, s, h);
	if (tp->delivered <= 1 && tp->snd_cwnd == TCP_INIT_CWND)
		tp->snd_cwnd = h->rho_8ths >> 3;
}

static __always_inline void hybla_set_state(struct sock *sk, struct plait_sock *s, __u8 state)
{
	((struct hybla *)s->private)->reno = state != TCP_CA_Open;
}

/* What one ACK adds, in 1/128 packets. */
static __always_inline __u32 hybla_increment(const struct tcp_sock *tp, const struct hybla *h, bool slow)
{
	__u32 rho = h->rho_8ths;

	if (slow)
		return ((__u32)(HYBLA_POWERS_128THS >> 8 * (rho & 7) & 0xff) << min(rho >> 3, (__u32)HYBLA_MAX_DOUBLINGS)) - HYBLA_PACKET;
	/* rho^2 / w: (rho_8ths / 8)^2 * 128 = 2 * rho_8ths^2 */
	return 2 * rho * rho / max(tp->snd_cwnd, 1u);
}

static __always_inline void hybla_cong_avoid(struct tcp_sock *tp, struct plait_sock *s, __u32 acked)
{
	struct hybla *h = (struct hybla *)s->private;
	__u32 cwnd = tp->snd_cwnd, cnt = tp->snd_cwnd_cnt, increment, fraction;
	bool slow = in_slow_start(tp);

	hybla_measure(tp, s, h);
	if (!cwnd_limited(tp))
		return;
	if (h->reno) {
		reno_cong_avoid(tp, acked);
		return;
	}
	increment = hybla_increment(tp, h, slow);
	if (!slow && increment < HYBLA_PACKET)
		cnt++;
	cwnd += increment / HYBLA_PACKET;
	fraction = h->fraction_128ths + increment % HYBLA_PACKET; /* < 2 packets */
	if (fraction >= HYBLA_PACKET) {
		fraction -= HYBLA_PACKET;
		cwnd++;
		cnt = 0;
	}
	h->fraction_128ths = fraction;
	if (!increment && cnt >= cwnd) { /* the increment rounds to nothing: Reno's */
		cwnd++;
		cnt = 0;
	}
	if (slow)
		cwnd = min(cwnd, tp->snd_ssthresh);
	cwnd = min(cwnd, (__u32)HYBLA_MAX_CWND_PACKETS);
	tp->snd_cwnd_cnt = cnt;
	tp->snd_cwnd = min(cwnd, tp->snd_cwnd_clamp);
}

#endif

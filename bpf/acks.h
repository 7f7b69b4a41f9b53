/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What programs that take in copies of ACKs say to the congestion control. Fixed-width fields only, padding explicit. */
#ifndef PLAIT_ACKS_H
#define PLAIT_ACKS_H

/* What the congestion control is told of a socket. */
struct plait_ack_native {
	__u64 at_us; /* CLOCK_MONOTONIC */
	__u32 lead_us;
	__u32 pad;
};

#endif

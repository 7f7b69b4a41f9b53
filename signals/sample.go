// Package signals holds what the kernel reports about TCP sockets, and what is computed from it without interpreting it.
// It does no input or output and reads no clock: time is part of a sample. Run its tests with
//
//	go test ./signals/...
package signals

// Sample is what the kernel half reports about one socket since its previous sample. Counters begin at 0 with each sample. A
// segment is one packet of at most MSS bytes of payload.
type Sample struct {
	// Cookie is the socket's number, unique on the host while it runs (SO_COOKIE).
	Cookie uint64 `json:"cookie"`
	// Path is a number that sockets between the same two addresses, in one network namespace, have in common; 0 if it is not known. There may be several ways between them.
	Path uint64 `json:"path,omitempty"`
	// AtUs is when the sample was taken, in microseconds of the kernel's monotonic clock.
	AtUs uint64 `json:"at_us"`
	// IntervalUs is the time since the socket's previous sample, modulo 71 minutes; 0 for the first one.
	IntervalUs uint32 `json:"interval_us"`
	// EveryUs is the shortest time between two samples of a socket, if that is more than PeriodUs because all sockets together have too many; else 0.
	EveryUs uint32 `json:"every_us,omitempty"`

	// SRTTUs is the kernel's smoothed round-trip time (RFC 6298); 0 if none has been measured.
	SRTTUs uint32 `json:"srtt_us"`
	// MinRTTUs is the least round-trip time of the last 8 to 16 bursts or 10 to 20 s, of an observed socket the kernel's own over
	// net.ipv4.tcp_min_rtt_wlen seconds; 0 if none.
	MinRTTUs uint32 `json:"min_rtt_us"`

	// RateBps is the newest delivery rate of payload in bit/s (draft-cheng-iccrg-delivery-rate-estimation); 0 if none.
	RateBps uint64 `json:"rate_bps"`
	// DispersionBps is the rate in bit/s at which the last train of packets came through, an upper estimate of the bottleneck's; 0
	// if there was none yet.
	DispersionBps uint64 `json:"dispersion_bps"`

	// Delivered counts segments the peer acknowledged for the first time, selectively or not.
	Delivered uint32 `json:"delivered_segments"`
	// LostSingle counts retransmitted segments in runs of at most 2 adjacent ones: the non-burst loss of the R-TCP thesis
	// (2016), section 3.1.
	LostSingle uint32 `json:"lost_single_segments"`
	// LostBurst counts retransmitted segments in runs of 3 or more adjacent ones: burst loss, same section.
	LostBurst uint32 `json:"lost_burst_segments"`
	// RTTAtLossUs is the last RTT measured when the last loss was found, but for those of ACKs that the receiver held back; 0 if the
	// interval had none. Near MinRTTUs the queue was short, and the loss hardly congestion.
	RTTAtLossUs uint32 `json:"rtt_at_loss_us"`
	// RTTAtLossMinUs is the shortest of those with which losses began in a round trip, and RTTAtLossMaxUs the longest of all at a loss; 0 if
	// the interval had none, or the socket is only observed.
	RTTAtLossMinUs uint32 `json:"rtt_at_loss_min_us,omitempty"`
	RTTAtLossMaxUs uint32 `json:"rtt_at_loss_max_us,omitempty"`
	// LossyRounds counts the round trips in which losses were found, up to 255: an overflow is one of them, or two. 0 if the socket is
	// only observed.
	LossyRounds uint8 `json:"lossy_rounds,omitempty"`

	// SpuriousRecoveries counts recoveries the kernel undid because nothing had been lost.
	SpuriousRecoveries uint32 `json:"spurious_recoveries"`
	// IdleRestarts counts how often sending resumed after an idle time for which the window was reduced (RFC 5681, section 4.1);
	// burst and bbr keep theirs.
	IdleRestarts uint32 `json:"idle_restarts"`

	// Bursts counts bursts that finished: data written after an idle time, until all of it was acknowledged.
	Bursts uint32 `json:"bursts"`
	// BurstBytes is the size of the last finished burst; 0 if none has finished yet.
	BurstBytes uint32 `json:"burst_bytes"`
	// BurstLatencyUs is the time from when the first byte was written to when the last one was acknowledged, of the last finished burst; 0 if none yet.
	BurstLatencyUs uint32 `json:"burst_latency_us"`

	// CwndSegments is the congestion window, 1 or more once the connection stands.
	CwndSegments uint32 `json:"cwnd_segments"`
	// SsthreshSegments is the slow-start threshold; 2147483647 until the first loss.
	SsthreshSegments uint32 `json:"ssthresh_segments"`
	// MSS is the payload of a full segment in bytes.
	MSS uint32 `json:"mss_bytes"`

	// Algorithm is the congestion control in use at the end of the interval.
	Algorithm Algorithm `json:"algorithm"`
	// Bulk is whether the socket has sent for so long or so much without a pause that the path is taken for the limit and not the
	// application (bpf/plait.bpf.c).
	Bulk bool `json:"bulk"`
	// Closed is whether this is the socket's last sample: it ended, or left plait. Policies are not given it.
	Closed bool `json:"closed,omitempty"`
	// Anew is whether it is the first one, of any socket, since all policies began anew: at the start of plait and with a new configuration.
	Anew bool `json:"anew,omitempty"`
}

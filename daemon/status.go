package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/congestion"
	"plait.dev/plait/signals"
)

// Status is what the daemon tells about itself: `plait status --json` prints it as it is.
type Status struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	UpSince time.Time `json:"up_since"`
	// Mode, Policy, HoldoutPercent and Allow are those of connections no rule is for; Rules says how many rules there are.
	Mode           Mode    `json:"mode"`
	Policy         string  `json:"policy"`
	HoldoutPercent float64 `json:"holdout_percent"`
	Allow          string  `json:"allow"`
	Rules          int     `json:"rules"`
	// Default is the congestion control connections return to.
	Default string `json:"default"`
	// Cgroup is the directory whose processes' connections plait takes; "the whole host" where it is not mounted.
	Cgroup string `json:"cgroup"`
	// Linked is whether the kernel takes plait back by itself when the daemon dies (Linux 6.4 and newer).
	Linked bool `json:"linked"`
	// Tracing is "on", or why bursts of held-out connections cannot be timed.
	Tracing string `json:"tracing"`
	// Counters are those of struct plait_counters (bpf/abi.h), by the names there, and choices_dropped, the daemon's own.
	Counters map[string]uint64 `json:"counters"`
	Prefixes []PrefixStatus    `json:"prefixes"`
	// Sockets are those the daemon has samples of.
	Sockets []SocketStatus `json:"sockets"`
	// Egress is there with the lever egress.
	Egress *EgressSummary `json:"egress,omitempty"`
	// Ackpath is there where the lever ackpath does something.
	Ackpath  *AckpathSummary `json:"ackpath,omitempty"`
	Warnings []string        `json:"warnings"`

	// For the metrics: latencies, and connections by congestion control.
	bursts     [2][len(bpf.Group{}.Buckets)]uint64
	algorithms map[string]int
}

// Group is one side of a comparison.
type Group struct {
	Connections uint64  `json:"connections"`
	Bursts      uint64  `json:"bursts"`
	Bytes       uint64  `json:"bytes"`
	MeanMs      float64 `json:"geometric_mean_ms"` // 0 without bursts, as the next two
	P50Ms       float64 `json:"p50_ms"`
	P95Ms       float64 `json:"p95_ms"`

	latency Histogram // for the comparison
}

// NewGroup summarizes latencies.
func NewGroup(h Histogram, bytes uint64) Group {
	return Group{
		Connections: h.Connections, Bursts: h.Bursts(), Bytes: bytes,
		MeanMs: h.GeometricMeanUs() / 1000, P50Ms: h.QuantileUs(0.5) / 1000, P95Ms: h.QuantileUs(0.95) / 1000,
		latency: h,
	}
}

// PrefixStatus compares the connections to one destination prefix under one rule.
type PrefixStatus struct {
	Prefix netip.Prefix `json:"prefix"`
	Policy string       `json:"policy"`
	// Rule is what the rule is for that gives them this policy; empty for connections no rule is for.
	Rule       string     `json:"rule,omitempty"`
	Managed    Group      `json:"managed"`
	Holdout    Group      `json:"holdout"`
	Difference Comparison `json:"difference"`
	// Reverted is whether the daemon has given the prefix back to the system's default because it was worse.
	Reverted bool `json:"reverted"`
	// RevertedAt is when.
	RevertedAt time.Time `json:"reverted_at,omitzero"`

	destination destination
}

// SocketStatus is what the daemon knows of one connection and why it uses what it uses.
type SocketStatus struct {
	Cookie    uint64         `json:"cookie"`
	Local     netip.AddrPort `json:"local"`
	Remote    netip.AddrPort `json:"remote"`
	Policy    string         `json:"policy"`
	Rule      string         `json:"rule,omitempty"` // as in PrefixStatus
	Algorithm string         `json:"algorithm"`      // in use
	Wanted    string         `json:"wanted"`         // chosen; differs in mode observe and until the next round trip
	Because   string         `json:"because"`
	// Scores are those of all candidates, if the policy compares.
	Scores []congestion.Score `json:"scores,omitempty"`
	// Total is since the daemon has had samples of the connection.
	Total Segments       `json:"total"`
	Last  signals.Sample `json:"last"`
	// AtLoss is of the last loss; nil if there was none since.
	AtLoss *AtLoss `json:"at_loss,omitempty"`
	// Destination compares the connections to the same prefix under the same rule; only Why gives it, where there is one.
	Destination *PrefixStatus `json:"destination,omitempty"`
}

// AtLoss is how long the queue was that lost a packet: the round trip then, less the least one.
type AtLoss struct {
	RTTUs    uint32 `json:"rtt_us"`
	MinRTTUs uint32 `json:"min_rtt_us"`
}

// Segments counts what samples tell of the packets of one connection or more.
type Segments struct {
	Delivered  uint64 `json:"delivered_segments"`
	LostSingle uint64 `json:"lost_single_segments"` // retransmitted in runs of at most 2, as in signals.Sample
	LostBurst  uint64 `json:"lost_burst_segments"`  // in longer runs
}

// Add counts those of another connection, or of another time, too.
func (s *Segments) Add(other Segments) {
	s.Delivered += other.Delivered
	s.LostSingle += other.LostSingle
	s.LostBurst += other.LostBurst
}

// ErrNoSocket is why there is nothing to tell about a socket.
var ErrNoSocket = errors.New("no such connection")

// socketName is how commands name a connection: an end (address:port), both ends joined by -, or the cookie as ss -e shows it.
type socketName struct {
	one, other netip.AddrPort
	cookie     uint64
}

// device is where ss names the device a socket is bound to or an address of the link is of: 192.0.2.1%vrf-a:443, [fe80::1]%eth0:443.
var device = regexp.MustCompile(`%[^]:]*`)

// parseEnd reads an address and port. Of sockets that speak IPv6, too, ss shows IPv4 as [::ffff:192.0.2.1]:443.
func parseEnd(s string) (netip.AddrPort, error) {
	end, err := netip.ParseAddrPort(s)
	return netip.AddrPortFrom(end.Addr().Unmap(), end.Port()), err
}

// parseSocket reads the name of a connection.
func parseSocket(s string) (socketName, error) {
	var name socketName
	one, other, both := strings.Cut(device.ReplaceAllString(s, ""), "-") // which may be in the name of a device
	var err error
	name.one, err = parseEnd(one)
	if err == nil && both {
		name.other, err = parseEnd(other)
	}
	if err == nil {
		return name, nil
	}
	// ss -e prints sk:1a, hexadecimal.
	if cookie, err := strconv.ParseUint(strings.TrimPrefix(s, "sk:"), 16, 64); err == nil && cookie != 0 {
		return socketName{cookie: cookie}, nil
	}
	return socketName{}, fmt.Errorf("socket %q: expected an end like 192.0.2.1:443 or [2001:db8::1]:443, both ends like 192.0.2.1:443-198.51.100.7:50000, or the cookie ss -e shows, like sk:1a", s)
}

// matches says whether a connection goes by this name.
func (n socketName) matches(s SocketStatus) bool {
	switch {
	case n.cookie != 0:
		return s.Cookie == n.cookie
	case n.other.IsValid():
		return s.Local == n.one && s.Remote == n.other || s.Local == n.other && s.Remote == n.one
	}
	return s.Local == n.one || s.Remote == n.one
}

// maxNamed is how many connections an ambiguous name lists.
const maxNamed = 5

// FindSocket returns the connection that goes by a name, with its destination.
func (s Status) FindSocket(name string) (SocketStatus, error) {
	n, err := parseSocket(name)
	if err != nil {
		return SocketStatus{}, err
	}
	var found []SocketStatus
	for _, k := range s.Sockets {
		if n.matches(k) {
			found = append(found, k)
		}
	}
	switch {
	case len(found) == 0:
		return SocketStatus{}, fmt.Errorf("find socket %s: %w that plait manages; plait status lists those", name, ErrNoSocket)
	case len(found) > 1:
		lines := []string{fmt.Sprintf("find socket %s: %d connections have this end; name one of them:", name, len(found))}
		for _, s := range found[:min(len(found), maxNamed)] {
			lines = append(lines, fmt.Sprintf("  %s-%s (sk:%x)", s.Local, s.Remote, s.Cookie))
		}
		if more := len(found) - maxNamed; more > 0 {
			lines = append(lines, fmt.Sprintf("  and %d more; plait status --json has all", more))
		}
		return SocketStatus{}, errors.New(strings.Join(lines, "\n"))
	}
	k := found[0]
	for _, p := range s.Prefixes {
		if p.Policy == k.Policy && p.Rule == k.Rule && p.Prefix.Contains(k.Remote.Addr()) {
			k.Destination = &p
		}
	}
	return k, nil
}

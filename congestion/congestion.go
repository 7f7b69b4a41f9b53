// Package congestion chooses the TCP congestion control of a socket from its signals, and says why. It decides and acts on
// nothing: no input or output, no clock, no goroutines. Run its tests with
//
//	go test ./congestion
package congestion

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"plait.dev/plait/signals"
)

// ForgetAfterUs is after how many microseconds a socket that sent nothing is forgotten: it begins anew, with another Policy.
const ForgetAfterUs = 600_000_000

// Policy chooses the congestion control of ONE socket. It is given all the socket's samples, in order of time. Not safe for
// concurrent use, nor are several that one function of New has made: they may learn from each other.
type Policy interface {
	// Choose returns the choice as of this sample. Its Algorithm may be the one in use.
	Choose(signals.Sample) Choice
	// End says that the socket has ended, or is forgotten. It is given no more samples.
	End()
}

// Choice is a congestion control and why it was chosen.
type Choice struct {
	// Algorithm is what the socket should use from now on.
	Algorithm signals.Algorithm `json:"algorithm"`
	// Bulk is what it should use from now on while it is limited by the path and not by the application.
	Bulk signals.Algorithm `json:"bulk"`
	// Because is the reason.
	Because Reason `json:"because"`
	// Scores are those of all candidates, in the order of their numbers; none if the policy compared nothing. Read-only.
	Scores []Score `json:"scores,omitempty"`
}

// Reason makes one sentence for a person, out of what was so when the choice was made: a busy host has thousands of choices a second that nobody asks about.
type Reason func() string

// known is a reason that needs no making.
func known(why string) Reason { return func() string { return why } }

func (r Reason) String() string {
	if r == nil {
		return ""
	}
	return r()
}

// MarshalText implements encoding.TextMarshaler.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Score is what a policy expects of a candidate.
type Score struct {
	Algorithm signals.Algorithm `json:"algorithm"`
	// LatencyMs is what the policy minimizes, in milliseconds: LossMs + BottleneckMs.
	LatencyMs float64 `json:"latency_ms"`
	// LossMs is the expected latency of a burst at the path's non-burst loss, in milliseconds.
	LossMs float64 `json:"loss_ms"`
	// BottleneckMs is the expected latency of a burst through the path's bottleneck, in milliseconds.
	BottleneckMs float64 `json:"bottleneck_ms"`
}

// A constructor makes what makes policies: what all sockets share, like tables, it reads once.
type constructor func() (func() Policy, error)

// policies are all policies by the names New takes. A new policy is a line here.
func policies() map[string]constructor {
	all := map[string]constructor{}
	for _, a := range signals.Algorithms() {
		all["fixed:"+a.String()] = func() (func() Policy, error) { return newFixed(a), nil }
	}
	for _, set := range tableSets() {
		all["rtcp:"+set] = func() (func() Policy, error) { return newRTCP(set) }
	}
	all["rtcp"] = all["rtcp:"+defaultTables]
	all["plait"] = func() (func() Policy, error) { return newPlait(), nil }
	all["plait:aggressive"] = func() (func() Policy, error) { return newAggressive, nil }
	return all
}

// Names lists the names New takes, sorted.
func Names() []string { return slices.Sorted(maps.Keys(policies())) }

// New returns what makes one instance of the named policy for each socket.
func New(policy string) (func() Policy, error) {
	construct, ok := policies()[policy]
	if !ok {
		return nil, fmt.Errorf("there is no policy %q; there are %s", policy, strings.Join(Names(), ", "))
	}
	return construct()
}

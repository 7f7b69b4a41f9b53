// Package traffic runs the applications of an experiment inside the guest: HTTP downloads, constant-bit-rate streams,
// interactive bursts, pings and programs of the user, between two network namespaces.
//
// Both sides of an application run in this process (or are started by it), so that every time is read from one clock and
// nothing but the application's own data crosses the network. Times are taken where the application sees them: after
// read(2) returned, before write(2) is called. Some tests make namespaces:
//
//	sudo PLAIT_TEST=netns go test ./lab/traffic
package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// Ends are where the two sides of an application live.
type Ends struct {
	// FromNS is the network namespace of the sender, ToNS that of the receiver: names under /run/netns.
	FromNS, ToNS string
	// From is the sender's address. It is listened on; ping asks from it.
	From netip.Addr
	// To is the receiver's address, or the zero Addr to let routing choose. Ping needs it: it is the one who answers.
	To netip.Addr
	// Port the sender listens on. It must differ between the applications of a cell: ping takes its identifier and
	// jitter_ms its random stream from it.
	Port uint16
}

// Clock is what an application measures time by.
type Clock struct {
	// Origin is the zero of all times, with a monotonic reading.
	Origin time.Time
	// Every is the interval of the series.
	Every time.Duration
	// Seed of the cell.
	Seed uint64
	// Began, if set, is called once, when the application begins: that is after its server is ready, if it has to wait for one.
	Began func()
}

// Outcome is what an application measured. Names lack the application's.
type Outcome struct {
	Metrics map[string]float64
	Series  []result.Series
	Samples []result.Samples
}

// run is one application while it runs.
type run struct {
	app   *experiment.App
	ends  Ends
	clock Clock
	// start is when the application began, and stop when stop_s or the end of the cell cuts it short (0: neither), since
	// Origin.
	start, stop time.Duration
	meter       *meter
}

// since is the time since Origin.
func (r *run) since() time.Duration { return time.Since(r.clock.Origin) }

// at turns a time since Origin into an instant.
func (r *run) at(t time.Duration) time.Time { return r.clock.Origin.Add(t) }

// end is when the application ended: now, or at its stop if that has passed.
func (r *run) end() time.Duration {
	if now := r.since(); r.stop == 0 || now < r.stop {
		return now
	}
	return r.stop
}

// begin starts the measurement. Every kind calls it once, one whose server is a program when that is ready. On a busy guest its stop may have passed by then.
func (r *run) begin() {
	r.start = r.end()
	r.meter = newMeter(r.start, r.clock.Every)
	if r.clock.Began != nil {
		r.clock.Began()
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

var errTimeout = errors.New("timeout")

// jitter is the random delay of the start by jitter_ms. Applications of a cell differ in their port, hence in their draws.
func jitter(a *experiment.App, port uint16, seed uint64) time.Duration {
	return milliseconds(a.JitterMs * rand.New(rand.NewPCG(seed, uint64(port))).Float64())
}

// kinds are the application types. Each begins, and returns when its work is done or ctx is; the latter is no error.
var kinds = map[string]func(context.Context, *run) (*Outcome, error){
	"download": download,
	"stream":   stream,
	"bursts":   bursts,
	"ping":     ping,
	"command":  command,
	"arms":     arms,
}

// Run runs an application from now (plus its random jitter_ms) until its work is done, or stop_s or ctx ends it, and
// returns what it measured; ended early, that is what it measured so far. stop_s counts from c.Origin. Errors name the
// side and the address; not being done timeout_s after the start is one.
func Run(ctx context.Context, a *experiment.App, e Ends, c Clock) (*Outcome, error) {
	kind, ok := kinds[a.Type]
	if !ok {
		return nil, fmt.Errorf("start application: unknown type %q", a.Type)
	}
	if a.StopS > 0 {
		stopping, cancel := context.WithDeadline(ctx, c.Origin.Add(seconds(a.StopS)))
		defer cancel()
		ctx = stopping
	}
	select {
	case <-time.After(jitter(a, e.Port, c.Seed)):
	case <-ctx.Done():
	}
	r := &run{app: a, ends: e, clock: c}
	if stop, ok := ctx.Deadline(); ok {
		r.stop = stop.Sub(c.Origin)
	}
	working := ctx
	if a.TimeoutS > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, seconds(a.TimeoutS), errTimeout)
		defer cancel()
		working = limited
	}
	out, err := kind(working, r)
	switch {
	case errors.Is(context.Cause(working), errTimeout):
		return nil, fmt.Errorf("run %s from %s to %s: not done %g s after its start (timeout_s)", a.Type, e.FromNS, e.ToNS, a.TimeoutS)
	case err != nil:
		return nil, fmt.Errorf("run %s from %s to %s: %w", a.Type, e.FromNS, e.ToNS, err)
	}
	out.Metrics["start_s"] = round(r.start.Seconds(), 6)
	return out, nil
}

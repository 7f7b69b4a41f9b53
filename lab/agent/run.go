package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/measure"
	"plait.dev/plait/lab/result"
	"plait.dev/plait/lab/topo"
	"plait.dev/plait/lab/traffic"
)

const (
	// firstPort of the applications; each has one of its own, so that a socket tells which application it belongs to.
	firstPort = 5001
	// lead is how long after the measurement starts the timeline begins, so that setting up collectors does not
	// delay the first application, and captureLead what each capture adds: a tcpdump takes some 20 ms to start.
	lead        = 100 * time.Millisecond
	captureLead = 50 * time.Millisecond
	// eventSlack is how late an event may be: what a few commands before it take.
	eventSlack = 500 * time.Millisecond
	// joinTime is how long an MPTCP connection has to open its subflows.
	joinTime = time.Second
)

// cell is one run: the topology is there, applications and timeline are not.
type cell struct {
	spec     *experiment.Spec
	seed     int
	network  *network
	host     host
	origin   time.Time
	ends     map[string]traffic.Ends
	timeline []experiment.Event // in order, with the times drawn
	record   *measure.Recorder

	mu      sync.Mutex // guards what applications and events report
	out     result.Cell
	invalid []error
}

// newCell draws the times of the events and finds out where the applications' ends are. The network that was prepared is the cell's, but the times of its events may be
// others, and what an event replaces is worked out from them.
func newCell(n *network, spec *experiment.Spec, seed int, h host) (*cell, error) {
	spec.Timeline = timeline(spec.Timeline, seed)
	var err error
	if n.topology, err = topo.New(spec); err != nil {
		return nil, err
	}
	c := &cell{spec: spec, seed: seed, network: n, host: h, ends: map[string]traffic.Ends{}, timeline: spec.Timeline}
	c.out.Metrics = map[string]map[string]float64{}
	for _, name := range sortedKeys(spec.Apps) {
		a := spec.Apps[name]
		e := traffic.Ends{FromNS: a.From, ToNS: a.To, Port: uint16(firstPort + a.Index)}
		var ok bool
		if e.From, ok = n.topology.Address(a.From, a.FromLink, a.Family); !ok {
			return nil, fmt.Errorf("application %s: %s has no IPv%d address on %q", name, a.From, a.Family, a.FromLink)
		}
		if a.ToLink != "" || a.Type == "ping" {
			if e.To, ok = n.topology.Address(a.To, a.ToLink, a.Family); !ok {
				return nil, fmt.Errorf("application %s: %s has no IPv%d address on %q", name, a.To, a.Family, a.ToLink)
			}
		}
		c.ends[name] = e
	}
	return c, nil
}

// timeline is the events in the order of the times at which they happen.
func timeline(events []experiment.Event, seed int) []experiment.Event {
	events = slices.Clone(events)
	for i := range events {
		e := &events[i]
		e.AtS += e.JitterMs / 1000 * rand.New(rand.NewPCG(uint64(seed), uint64(e.Index))).Float64()
		e.JitterMs = 0
	}
	slices.SortStableFunc(events, func(a, b experiment.Event) int { return cmp.Compare(a.AtS, b.AtS) })
	return events
}

// fail notes a reason why the cell's numbers mean nothing.
func (c *cell) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.invalid = append(c.invalid, err)
}

// add stores what was measured under the name of the application.
func (c *cell) add(name string, metrics map[string]float64, series []result.Series, samples []result.Samples) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.Metrics[name] == nil {
		c.out.Metrics[name] = map[string]float64{}
	}
	maps.Copy(c.out.Metrics[name], metrics)
	for _, s := range series {
		s.Name = name + "." + s.Name
		c.out.Series = append(c.out.Series, s)
	}
	for _, s := range samples {
		s.Name = name + "." + s.Name
		c.out.Samples = append(c.out.Samples, s)
	}
}

// runApp runs one application at its time.
func (c *cell) runApp(ctx context.Context, name string) {
	a := c.spec.Apps[name]
	if !c.sleepUntil(ctx, a.StartS) {
		return
	}
	clock := traffic.Clock{Origin: c.origin, Every: c.every(), Seed: uint64(c.seed)}
	ended := func() {}
	if a.MinSubflows > 0 {
		clock.Began, ended = c.watchSubflows(name, a.MinSubflows)
	}
	out, err := traffic.Run(ctx, a, c.ends[name], clock)
	ended()
	if err != nil {
		c.fail(fmt.Errorf("application %s: %w", name, err))
		return
	}
	c.add(name, out.Metrics, out.Series, out.Samples)
}

// watchSubflows has the subflows of an application counted joinTime after it began. One that has ended by then is as invalid as one
// without them: its numbers would be those of the paths it happened to have.
func (c *cell) watchSubflows(name string, least int) (began, ended func()) {
	check := time.AfterFunc(joinTime, func() {
		if got, err := c.record.Subflows(name); err != nil || got < least {
			c.fail(errors.Join(err, fmt.Errorf("application %s: %d of %d MPTCP subflows after %v", name, got, least, joinTime)))
		}
	})
	check.Stop() // until it begins
	began = func() { check.Reset(joinTime) }
	ended = func() {
		if check.Stop() {
			c.fail(fmt.Errorf("application %s: ended within %v of its start, before its MPTCP subflows were counted; let it last longer, or write min_subflows: 0", name, joinTime))
		}
	}
	return began, ended
}

func (c *cell) every() time.Duration { return time.Duration(c.spec.Measure.EveryMs) * time.Millisecond }

// sleepUntil a time of the timeline, or false if the cell ends before.
func (c *cell) sleepUntil(ctx context.Context, atS float64) bool {
	t := time.NewTimer(time.Until(c.origin.Add(time.Duration(atS * float64(time.Second)))))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// runTimeline lets the events happen.
func (c *cell) runTimeline(ctx context.Context) {
	for _, e := range c.timeline {
		if !c.sleepUntil(ctx, e.AtS) {
			return
		}
		if err := late(e, time.Since(c.origin)); err != nil {
			c.fail(err)
			return
		}
		if err := c.network.happen(c.spec, e, uint64(c.seed)); err != nil {
			c.fail(fmt.Errorf("event at %g s: %w", e.AtS, err))
			return
		}
		c.mu.Lock()
		c.out.Marks = append(c.out.Marks, result.Mark{AtS: e.AtS, Text: describe(e)})
		c.mu.Unlock()
	}
}

// late is an error if an event of the timeline comes too late to be called one of its time: the events before it have taken longer.
func late(e experiment.Event, now time.Duration) error {
	at := time.Duration(e.AtS * float64(time.Second))
	if now <= at+eventSlack {
		return nil
	}
	return fmt.Errorf("event at %g s (%s): it would come %.1f s late, as the one before has taken until now; let a command that takes long go on in the background, with & at its end",
		e.AtS, describe(e), (now - at).Seconds())
}

// limit is when the cell must have ended if every application, event and collector keeps to its own limit.
func (c *cell) limit() float64 {
	last := c.spec.DurationS
	if last == 0 {
		for _, a := range c.spec.Apps {
			last = max(last, a.StartS+a.JitterMs/1000+a.TimeoutS)
		}
		for _, e := range c.timeline {
			last = max(last, e.AtS)
		}
	}
	return last + (2 * commandTimeout).Seconds()
}

// heartbeat tells the host how far the cell is. A machine without end would skip idle time for ever, so it ends here.
func (c *cell) heartbeat(ctx context.Context) {
	limit := c.limit()
	for s := 1.0; c.sleepUntil(ctx, s); s++ {
		c.host.send(Message{AtS: s})
		if s > limit {
			c.host.send(Message{Invalid: fmt.Sprintf("not ended after %g s", s)})
			c.host.ports.end()
		}
	}
}

// measureConfig is what is recorded.
func (c *cell) measureConfig() measure.Config {
	m := measure.Config{Every: c.every(), Origin: c.origin, Measure: c.spec.Measure, Nodes: c.network.topology.Nodes()}
	for _, name := range sortedKeys(c.spec.Apps) {
		e, a := c.ends[name], c.spec.Apps[name]
		if a.Type == "ping" || a.Protocol == "sctp" {
			continue // no TCP sockets to follow
		}
		m.Apps = append(m.Apps, measure.App{Name: name, FromNS: e.FromNS, Port: e.Port, MPTCP: a.Protocol == "mptcp", Foreign: a.Type == "command"})
	}
	m.Links = c.network.counters(c.spec)
	followed := c.spec.Measure.Prefix
	for _, e := range c.timeline {
		if kind := routeEvent(e); kind != "" {
			m.Events = append(m.Events, measure.RouteEvent{At: time.Duration(e.AtS * float64(time.Second)), Kind: kind})
		}
		followed = cmp.Or(followed, e.Announce, e.Withdraw)
	}
	m.Prefix = map[string]netip.Prefix{}
	for _, node := range c.spec.Measure.Routes {
		m.Prefix[node], _ = c.network.topology.Prefix(followed)
	}
	return m
}

// routeEvent is the kind of an event that routes answer to, empty for others.
func routeEvent(e experiment.Event) string {
	switch {
	case e.Announce != "":
		return measure.Announce
	case e.Withdraw != "":
		return measure.Withdraw
	case e.Carrier == "down", e.Blackhole != "" && e.Blackhole != "none":
		return measure.Fail
	case e.Carrier == "up", e.Blackhole == "none":
		return measure.Recover
	}
	return ""
}

// collect ends the measurement.
func (c *cell) collect() (*result.Cell, map[string][]byte, error) {
	out, err := c.record.Stop()
	if out != nil && len(c.spec.Measure.Jain) > 0 {
		c.fairness(out.Series)
	}
	if err := errors.Join(append(c.invalid, err, c.network.tally.broken)...); err != nil {
		return nil, nil, err
	}
	for name, app := range c.spec.Apps {
		delivered, ok := out.Metrics[name]["delivered_bytes"]
		if took := c.out.Metrics[name]["completion_s"]; app.Type == "command" && ok && took > 0 {
			out.Metrics[name]["goodput_mbps"] = delivered * 8 / 1e6 / took
		}
	}
	for name, metrics := range out.Metrics {
		c.add(name, metrics, nil, nil)
	}
	c.out.Series = append(c.out.Series, out.Series...)
	c.out.Samples = append(c.out.Samples, out.Samples...)
	c.out.Marks = append(c.out.Marks, out.Marks...)
	slices.SortStableFunc(c.out.Series, func(a, b result.Series) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(c.out.Samples, func(a, b result.Samples) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(c.out.Marks, func(a, b result.Mark) int { return cmp.Compare(a.AtS, b.AtS) })
	return &c.out, out.Files, nil
}

// run runs the cell: everything is in place, then time begins.
func (c *cell) run() (*result.Cell, map[string][]byte, error) {
	if err := c.network.configure(c.spec, c.seed); err != nil {
		return nil, nil, err
	}
	c.origin = time.Now().Add(lead + time.Duration(len(c.spec.Measure.Pcap))*captureLead)
	whole, stop := context.WithCancel(context.Background())
	defer stop()
	ctx := whole
	if c.spec.DurationS > 0 {
		ctx, stop = context.WithDeadline(ctx, c.origin.Add(time.Duration(c.spec.DurationS*float64(time.Second))))
		defer stop()
	}
	var err error
	if c.record, err = measure.Start(ctx, c.measureConfig()); err != nil {
		return nil, nil, err
	}
	go c.heartbeat(whole)
	var working sync.WaitGroup
	for _, name := range sortedKeys(c.spec.Apps) {
		working.Go(func() { c.runApp(ctx, name) })
	}
	working.Go(func() { c.runTimeline(ctx) })
	if len(c.spec.Apps) == 0 {
		working.Go(func() { <-ctx.Done() }) // the cell lasts duration_s: what is measured may follow the last event
	}
	working.Wait()
	c.out.VirtualS = seconds(time.Since(c.origin))
	return c.collect()
}

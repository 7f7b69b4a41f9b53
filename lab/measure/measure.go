// Package measure records what the kernel and the links do while the applications of a cell run. It works in the
// guest's agent process and needs root. Every metric and series is defined in docs/lab/measure.md. Run the tests with
//
//	sudo PLAIT_TEST=netns go test ./lab/measure
package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// Config says what to record.
type Config struct {
	// Every is the interval of all series.
	Every time.Duration
	// Origin is time 0 of the timeline, with a monotonic reading. Series have their values at Origin + k * Every.
	Origin time.Time
	// Nodes are the namespaces whose TCP counters become metrics of the node.
	Nodes []string
	// Apps are the applications whose sockets are recorded.
	Apps []App
	// Links are the directions of links whose totals are recorded.
	Links []Link
	// Measure chooses what is recorded beyond the totals. Its Jain is not looked at: see Jain.
	Measure experiment.Measure
	// Prefix is, for each node of Measure.Routes, the destination whose routes are followed.
	Prefix map[string]netip.Prefix
	// Events are the announcements and withdrawals the route changes are answers to, in order.
	Events []RouteEvent
}

// App is an application as the kernel shows it: the TCP sockets in the sender's namespace with its port.
type App struct {
	Name string
	// FromNS is the sender's namespace.
	FromNS string
	// Port is the port of the application's server, on either side. No other application uses it.
	Port uint16
	// MPTCP says that the sockets are subflows of MPTCP connections.
	MPTCP bool
	// Foreign says that a program receives the data, not the lab: with Measure.Sockets its goodput is what its sockets delivered.
	Foreign bool
}

// Outcome is what was recorded, in the shape of a result.Cell.
type Outcome struct {
	// Metrics by application, subflow ("bulk/1"), node or link, then by metric.
	Metrics map[string]map[string]float64
	// Series are sorted by name.
	Series []result.Series
	// Samples are sorted by name.
	Samples []result.Samples
	// Marks are the route changes, in order of time.
	Marks []result.Mark
	// Files are the captures: "node-link.pcap" -> contents.
	Files map[string][]byte
}

// set stores one metric.
func (o *Outcome) set(of, metric string, value float64) {
	if o.Metrics[of] == nil {
		o.Metrics[of] = map[string]float64{}
	}
	o.Metrics[of][metric] = value
}

// collector is one thing that is recorded from its creation to finish.
type collector interface {
	// finish ends the recording, releases everything the collector holds and adds the results. end is the time since Origin.
	finish(end time.Duration, out *Outcome) error
}

// sampler is a collector that looks at its subject at the end of every interval.
type sampler interface {
	// sample reads the state. Its values have index k; k grows but may leave out numbers if the machine was busy, and then
	// the collector repeats the value. elapsed is the time since the last sample, or since the start.
	sample(k int, elapsed time.Duration) error
}

// Recorder is a running measurement.
type Recorder struct {
	cfg        Config
	collectors []collector
	sockets    *sockets
	stop       context.CancelFunc
	running    sync.WaitGroup
	sampleErr  error // the first one of runSampling; read after running is done
}

// Start begins to record. All collectors run when it returns. They end with Stop or ctx; what they hold is released by
// Stop only.
func Start(ctx context.Context, cfg Config) (*Recorder, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &Recorder{cfg: cfg, stop: cancel}
	if err := r.open(ctx); err != nil {
		cancel()
		_ = r.finish(&Outcome{Metrics: map[string]map[string]float64{}, Files: map[string][]byte{}}) // the cause is err
		return nil, err
	}
	r.running.Go(func() { r.runSampling(ctx) })
	return r, nil
}

// open starts the collectors that the configuration asks for, the expensive ones first.
func (r *Recorder) open(ctx context.Context) error {
	m := r.cfg.Measure
	start := []struct {
		wanted bool
		open   func() (collector, error)
	}{
		{len(m.Pcap) > 0, func() (collector, error) { return openCaptures(m.Pcap) }},
		{m.Probe && len(r.cfg.Apps) > 0, func() (collector, error) { return openProbe(tracefs, r.cfg) }},
		{len(m.Routes) > 0, func() (collector, error) { return openRoutes(r.cfg) }},
		{true, func() (collector, error) { return openCounters(r.cfg.Nodes) }},
		{true, func() (collector, error) { return openLinks(r.cfg) }},
		{true, func() (collector, error) {
			s, err := openSockets(r.cfg)
			r.sockets = s
			return s, err
		}},
		{true, func() (collector, error) { return openWatchdog(ctx), nil }},
	}
	for _, s := range start {
		if !s.wanted {
			continue
		}
		c, err := s.open()
		if err != nil {
			return fmt.Errorf("start measurement: %w", err)
		}
		r.collectors = append(r.collectors, c)
	}
	return nil
}

// runSampling takes the samples at Origin + k * Every. Whether a sample that is due when the recorder stops is taken
// depends on the clock alone, not on what the runtime does first.
func (r *Recorder) runSampling(ctx context.Context) {
	last := time.Since(r.cfg.Origin)
	for ctx.Err() == nil {
		k := 0
		if since := time.Since(r.cfg.Origin); since >= 0 {
			k = int(since/r.cfg.Every) + 1
		}
		due := r.cfg.Origin.Add(time.Duration(k) * r.cfg.Every)
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		if time.Until(due) > 0 {
			return
		}
		now := time.Since(r.cfg.Origin)
		if err := r.sample(k, now-last); err != nil && r.sampleErr == nil {
			r.sampleErr = fmt.Errorf("sample at %.3f s: %w", now.Seconds(), err)
		}
		last = now
	}
}

// sample lets all collectors sample.
func (r *Recorder) sample(k int, elapsed time.Duration) error {
	var errs []error
	for _, c := range r.collectors {
		if s, ok := c.(sampler); ok {
			errs = append(errs, s.sample(k, elapsed))
		}
	}
	return errors.Join(errs...)
}

// Subflows is how many established subflows the MPTCP connections of the application have now: the fewest of any of
// its connections, 0 if there is none or the recorder has stopped. A connection that fell back to TCP has none.
func (r *Recorder) Subflows(app string) (int, error) { return r.sockets.subflows(app) }

// Stop ends the recording and gives the results. It returns an error if a collector lost something or the clock jumped:
// then the numbers are worth nothing. Call it once.
func (r *Recorder) Stop() (*Outcome, error) {
	r.stop()
	r.running.Wait()
	out := &Outcome{Metrics: map[string]map[string]float64{}, Files: map[string][]byte{}}
	if err := errors.Join(r.sampleErr, r.finish(out)); err != nil {
		return nil, fmt.Errorf("stop measurement: %w", err)
	}
	slices.SortFunc(out.Series, func(a, b result.Series) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Samples, func(a, b result.Samples) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(out.Marks, func(a, b result.Mark) int { return cmp.Compare(a.AtS, b.AtS) })
	return out, nil
}

// finish ends all collectors, the last one first, so that what is cheap and exact is read before the captures settle.
func (r *Recorder) finish(out *Outcome) error {
	end := time.Since(r.cfg.Origin)
	var errs []error
	for _, c := range slices.Backward(r.collectors) {
		errs = append(errs, c.finish(end, out))
	}
	return errors.Join(errs...)
}

// series makes one evenly spaced series that begins with index first. Values keep six significant digits.
func (c Config) series(name, unit, label string, first int, values []float64) result.Series {
	rounded := make([]float64, len(values))
	for i, v := range values {
		rounded[i] = round(v)
	}
	every := c.Every.Seconds()
	start := math.Round(float64(first)*every*1e6) / 1e6 // six digits would not do for the milliseconds of a quarter of an hour
	return result.Series{Name: name, Unit: unit, Label: label, StartS: start, StepS: every, Values: rounded}
}

// round keeps six significant digits.
func round(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64) // what FormatFloat writes can be parsed
	return short
}

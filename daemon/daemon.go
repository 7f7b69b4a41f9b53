// Package daemon is what `plait up` runs: it puts the kernel half in place, keeps it informed, chooses for the sockets whose
// policy needs user space, and takes everything back at the end. It is the only writer of kernel state.
//
// Goroutines: Run's own (heartbeat, comparison), runSamples (reads the ring buffer, chooses), and the servers of control.go and
// metrics.go. What they share is behind Daemon.mu.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/congestion"
	"plait.dev/plait/signals"
)

const (
	// beatEvery is how often the daemon tells the kernel half that it lives.
	beatEvery = time.Second
	// stale is the age of the last heartbeat at which sockets go back to the system's default.
	stale = 5 * time.Second
	// samplesPerSecond is how many samples the daemon reads before it asks the kernel half for fewer: about 1 % of a core.
	samplesPerSecond = 5000
	// minSampleEvery is R-TCP's period; maxSampleEvery bounds how long a busy host's sockets wait for a choice.
	minSampleEvery = 200 * time.Millisecond
	maxSampleEvery = 60 * time.Second
	// gather is how long samples gather in the ring buffer, which holds 30,000, before they are read: to be woken for one costs
	// more than to read it.
	gather = 50 * time.Millisecond
)

// Options of a run that are not configuration.
type Options struct {
	// ConfigPath is read again by Reload; empty if there is no file.
	ConfigPath string
	Version    string
	// Log receives one line per decision about the host.
	Log io.Writer
	// SignalLog receives every sample as a line of JSON, for plait replay; nil is off.
	SignalLog io.Writer
	// Ready is called once plait is in place.
	Ready func()
	// Hangups make the daemon read its configuration again, as Reload does; nil if none are heard.
	Hangups <-chan os.Signal
}

// began is what sockets count from: a time.Time would be three times as large.
var began = time.Now()

// socket is what the daemon knows of one connection. There may be a hundred thousand: the 288 bytes it has are one of the allocator's sizes, and the next one is 320.
type socket struct {
	under     *policy // as configured when it was first heard of
	policy    congestion.Policy
	last      sample
	because   congestion.Reason // of the last choice
	scores    []congestion.Score
	algorithm signals.Algorithm // wanted while the application is the limit
	bulk      signals.Algorithm // wanted while the path is
	total     Segments
	atLoss    *AtLoss       // nil: no loss was seen
	seen      time.Duration // since began
	every     time.Duration // between samples, when the last one came
}

// Daemon is a running plait.
type Daemon struct {
	options Options
	kernel  *kernel
	stop    context.CancelCauseFunc
	upSince time.Time
	exits   *exits // nil: the lever is not configured, or off
	acks    *acks

	mu       sync.Mutex // guards what follows
	config   Config
	policies []policy // by the kernel half's index; 0 is for what no rule matches
	sockets  map[uint64]*socket
	reverted map[destination]PrefixStatus // given back to the default; as they were then
	compared time.Time
	dropped  uint64 // choices there was no room for
	stood    uint64 // times it stood still for so long that connections left
	ration   ration // of choices in the log
	samples  int    // since the last heartbeat
	every    time.Duration
	halfway  bool // the kernel half has neither this configuration nor another: a change failed, and so did taking it back
	anew     bool // no sample has come since all policies began anew
}

// record writes a sample to the signal log, if there is one.
func (d *Daemon) record(s signals.Sample) error {
	if d.options.SignalLog == nil {
		return nil
	}
	line, err := json.Marshal(s)
	if err == nil {
		_, err = d.options.SignalLog.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write signal log: %w", err)
	}
	return nil
}

// forget ends what is known of a connection. The caller has d.mu.
func (d *Daemon) forget(cookie uint64) {
	if k, known := d.sockets[cookie]; known {
		k.policy.End()
		delete(d.sockets, cookie)
	}
	d.kernel.forget(cookie)
}

// act is what happens with one sample.
func (d *Daemon) act(s sample) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !s.Closed { // ends come whatever the time between samples is
		d.samples++
	}
	if !s.Closed && s.generation != d.kernel.control.Generation {
		return nil // under rules that are no more; the next one will be under those of now
	}
	every := d.every
	if k := d.sockets[s.Cookie]; k != nil {
		every = max(every, k.every) // this one may have begun when they were rarer
	}
	if every > minSampleEvery {
		s.EveryUs = uint32(every.Microseconds())
	}
	s.Anew, d.anew = d.anew, false
	if err := d.record(s.Sample); err != nil {
		return err
	}
	if s.Closed {
		d.forget(s.Cookie)
		return nil
	}
	p := &d.policies[s.policy]
	k, known := d.sockets[s.Cookie]
	if !known {
		k = &socket{under: p, policy: p.choose(), algorithm: signals.Algorithm(p.kernel.Algorithm), bulk: signals.Algorithm(p.kernel.Bulk)}
		d.sockets[s.Cookie] = k
	}
	k.last, k.seen, k.every = s, time.Since(began), d.every
	k.total.Add(Segments{uint64(s.Delivered), uint64(s.LostSingle), uint64(s.LostBurst)})
	if s.RTTAtLossUs > 0 {
		k.atLoss = &AtLoss{RTTUs: s.RTTAtLossUs, MinRTTUs: s.MinRTTUs}
	}
	c := k.policy.Choose(s.Sample)
	k.because, k.scores = c.Because, c.Scores
	if k.algorithm == c.Algorithm && k.bulk == c.Bulk && (known || p.lever.Mode == On) {
		return nil
	}
	if p.lever.Mode == On {
		err := d.kernel.choose(s.Cookie, c.Algorithm, c.Bulk)
		if full(err) {
			if d.dropped == 0 {
				fmt.Fprintf(d.options.Log, "no room for the choices of so many connections (%v): they stay with what their policy begins with until there is; plait status counts\n", err)
			}
			d.dropped++
			return nil // the next sample tries again
		}
		if err != nil {
			return err
		}
	}
	k.algorithm, k.bulk = c.Algorithm, c.Bulk
	f := flowOf(s.flow)
	line := fmt.Sprintf("%s %s-%s: %s, transfers %s: %s", p.lever.Mode, f.Local, f.Remote, k.algorithm, k.bulk, c.Because)
	if line = d.ration.take(time.Now(), line); line != "" {
		fmt.Fprintln(d.options.Log, line)
	}
	return nil
}

// runSamples reads samples until the kernel half is closed.
func (d *Daemon) runSamples() error {
	for {
		s, more, err := d.kernel.read()
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err == nil {
			err = d.act(s)
		}
		if err != nil {
			return err
		}
		if !more {
			time.Sleep(gather)
		}
	}
}

// budget makes sockets report less often when there are too many reports, and more often again when there are few.
func (d *Daemon) budget() {
	limit := int(samplesPerSecond * beatEvery / time.Second)
	switch {
	case d.samples > limit:
		d.every = min(2*d.every, maxSampleEvery)
	case d.samples < limit/4:
		d.every = max(d.every/2, minSampleEvery)
	}
	d.samples = 0
}

// tick is what happens every second.
func (d *Daemon) tick() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.budget()
	changed, err := d.follow()
	if err := errors.Join(err, d.kernel.beat(d.every)); err != nil {
		return err
	}
	silent := d.kernel.silent
	d.kernel.silent = 0
	if silent > stale {
		if err := d.resume(silent); err != nil {
			return err
		}
	}
	if changed { // the kernel half did not take those on a default that it did not know
		if err := d.kernel.pass(passRevise); err != nil {
			return err
		}
	}
	if time.Since(d.compared) < compareEvery {
		return nil
	}
	d.compared = time.Now()
	for cookie, k := range d.sockets {
		if (time.Since(began) - k.seen).Microseconds() > congestion.ForgetAfterUs {
			d.forget(cookie)
		}
	}
	return d.revert()
}

// resume takes the connections again that have left because the daemon stood still, and those made meanwhile. The caller has d.mu.
func (d *Daemon) resume(silent time.Duration) error {
	d.stood++
	fmt.Fprintf(d.options.Log, "plait stood still for %v: connections that have left meanwhile are taken again\n", silent.Round(time.Second))
	return d.kernel.pass(passRevise)
}

// open puts plait in place: first everything that can fail, then the connections that are there already.
func open(c Config, o Options) (*Daemon, error) {
	name, err := fallback()
	if err != nil {
		return nil, err
	}
	var cgroup uint64
	if c.takes() {
		if c.Cgroup, cgroup, err = c.whose(); err != nil {
			return nil, err
		}
	}
	spec, linked, err := load(c)
	if err != nil {
		return nil, fmt.Errorf("%w; plait doctor says what this host lacks", err)
	}
	if c.takes() && registered() {
		return nil, errTaken(linked)
	}
	k, err := loadKernel(spec, linked, bpf.Control{HeartbeatNs: monotonicNs(), StaleNs: uint64(stale), SampleNs: uint64(minSampleEvery), Fallback: name, Cgroup: cgroup})
	if err != nil {
		return nil, err
	}
	d := &Daemon{options: o, kernel: k, acks: openAcks(c, k, o.Log), upSince: time.Now(), sockets: map[uint64]*socket{}, reverted: map[destination]PrefixStatus{}, compared: time.Now(), every: minSampleEvery, ration: newRation("plait why has what is chosen now")}
	err = d.install(c)
	if err == nil {
		err = k.beat(d.every) // loading may have taken as long as a silence that sends sockets back
		k.silent = 0          // of which there are none yet
	}
	if err == nil && c.takes() {
		err = k.engage(c.Cgroup)
	}
	if err == nil {
		err = k.pass(passTake)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// close takes plait out of the kernel. Its sockets return to the system's default at once, with windows their paths have carried. A reload that is
// asked for meanwhile comes before, or too late.
func (d *Daemon) close() error { return d.end(nil) }

// end is close for a plait that ends because of an error, which it does not say again.
func (d *Daemon) end(why error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kernel.helper.hurry()
	_, followed := d.follow()
	before := errors.Join(d.acks.close(), followed, d.kernel.unhook())
	released := d.kernel.pass(passRelease)
	if errors.Is(why, errHelperGone) && errors.Is(released, errHelperGone) {
		released = nil
	}
	return errors.Join(before, released, d.kernel.Close(), d.kernel.helper.end())
}

// questions are those of the daemon and of its levers.
func (d *Daemon) questions() *http.ServeMux {
	m := handler(d)
	d.exits.questions(m)
	d.acks.questions(m)
	return m
}

// watch keeps the heartbeat going until ctx ends or a part of plait fails.
func (d *Daemon) watch(ctx context.Context, failed <-chan error) error {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if err != nil {
				return err
			}
		case <-tick.C:
			if err := d.tick(); err != nil {
				return err
			}
		}
	}
}

// reloads reads the configuration again at every hangup, until ctx ends. The log has the outcome.
func (d *Daemon) reloads(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.options.Hangups:
			_ = d.Reload()
		}
	}
}

// openRest starts the helper process and the lever egress, and gives up the rights that are needed no more.
func (d *Daemon) openRest(ctx context.Context, c Config, held []*os.File) (err error) {
	exits := c.Egress.there()
	d.kernel.helper, err = startHelper(held, d.kernel.Programs[passProgram], exits && c.Egress.Mode == On)
	switch {
	case err != nil:
		return err
	case exits:
		debug.SetGCPercent(30) // a full table of four exits is 390 MB that stay: as much again in garbage, as by default, would be too much
		d.exits, err = openExits(ctx, c.Egress, c.Control, d.options.Log)
		return err
	}
	return keep(daemonKeeps)
}

// Run is plait from up to down: it returns when ctx ends or Stop is called, with the host as it was before.
func Run(ctx context.Context, c Config, o Options) error {
	log := newSpool(o.Log)
	defer log.Close()
	o.Log = log
	held, err := c.locks() // first: where another plait is, this one must not touch the kernel
	if err != nil {
		return err
	}
	if !c.Egress.there() || c.Egress.Mode != On {
		removeKilled(c, o.Log) // now: it may take longer than connections wait for a heartbeat
	}
	return errors.Join(run(ctx, c, o, held), closeAll(held))
}

// run is Run for who holds the locks.
func run(ctx context.Context, c Config, o Options, held []*os.File) (err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	control, err := listen(c.Control)
	if err != nil {
		return err
	}
	metrics, err := listenMetrics(ctx, c.Metrics)
	if err != nil {
		return errors.Join(err, control.Close())
	}
	d, err := open(c, o)
	if err == nil {
		if err = d.openRest(ctx, c, held); err != nil {
			err = errors.Join(err, d.close())
		}
	}
	if err != nil {
		if metrics != nil {
			err = errors.Join(err, metrics.Close())
		}
		return errors.Join(err, control.Close())
	}
	d.stop = stop
	d.acks.configure(c)
	failed := make(chan error, 5)
	var running sync.WaitGroup
	defer func() { // who has asked gets an answer, but no connection waits for that
		stop(nil)
		err = errors.Join(err, d.end(err))
		running.Wait()
	}()
	if d.exits != nil {
		ended := make(chan struct{})
		go func() { failed <- d.exits.run(ctx); close(ended) }()
		defer func() { stop(nil); <-ended; err = errors.Join(err, d.exits.close()) }()
	}
	running.Go(func() { failed <- d.runSamples() })
	running.Go(func() { failed <- d.kernel.helper.watch(ctx) })
	running.Go(func() { d.reloads(ctx) })
	running.Go(func() { failed <- serve(ctx, control, d.questions(), 0) })
	if metrics != nil {
		running.Go(func() { failed <- serve(ctx, metrics, metricsHandler(d.totals, d.exits, d.acks), metricsPatience) })
	}
	fmt.Fprintf(o.Log, "plait %s is up: %s\n", o.Version, c.outline(o.ConfigPath))
	if o.Ready != nil {
		o.Ready()
	}
	err = d.watch(ctx, failed)
	if err == nil {
		fmt.Fprintf(o.Log, "plait goes down: %v\n", context.Cause(ctx))
	}
	return err
}

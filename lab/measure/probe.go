package measure

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tracefs is where the guest's init mounts it.
const tracefs = "/sys/kernel/tracing"

// probeBufferKiB holds what happens between two samples: about 100000 events.
const probeBufferKiB = 16 << 10

// Congestion states (include/uapi/linux/tcp.h, enum tcp_ca_state).
const (
	caRecovery = 3
	caLoss     = 4
)

// probeSeries are what the probe counts, in the order of probe.counts.
var probeSeries = [...]string{"dup_acks", "fast_retransmits", "timeout_retransmits", "probe_retransmits"}

const (
	countDupACK = iota
	countFast
	countTimeout
	countProbe
)

// probe follows the tcp tracepoints of the kernel (include/trace/events/tcp.h) for the applications' ports, in a trace
// instance of its own. Events are read and counted at every sample, so that memory is bounded.
type probe struct {
	cfg      Config
	tracefs  string // directory
	instance string // directory
	pipes    []int  // one per CPU
	page     []byte
	formats  [3]traceFormat // in the order of probeEvents
	origin   uint64         // Config.Origin on the trace clock (CLOCK_MONOTONIC), ns
	apps     map[uint16]int // by port

	events []probeEvent // of the current sample
	acks   map[uint64]probeEvent
	states map[uint64]uint8 // congestion state by socket address; Open if absent
	counts [][len(probeSeries)][]float64
}

// probeEvents are the events and the fields that are read.
var probeEvents = [...]struct {
	name   string
	fields []string
}{
	{"tcp/tcp_probe", []string{"sport", "dport", "data_len", "snd_nxt", "snd_una", "sock_cookie"}},
	{"tcp/tcp_cong_state_set", []string{"sport", "dport", "skaddr", "cong_state"}},
	{"plait/retransmit", []string{"sport", "dport", "skaddr", "segments"}},
}

// retransmitEvent is tcp_retransmit_skb and how many segments the buffer has that is sent again: its tcp_gso_segs, behind 40 bytes of sk_buff and two
// sequence numbers (include/linux/skbuff.h, include/net/tcp.h; the same from Linux 6.1 to 7.3).
const retransmitEvent = "e:plait/retransmit tcp/tcp_retransmit_skb sport=$sport:u16 dport=$dport:u16 skaddr=$skaddr:x64 segments=+48($skbaddr):u16"

var errNoEventProbes = errors.New("this kernel has no event probes")

const (
	eventProbe = iota
	eventState
	eventRetransmit
)

// probeEvent is one decoded event.
type probeEvent struct {
	at       time.Duration // since Config.Origin
	kind     int
	app      int
	socket   uint64 // cookie (tcp_probe) or address
	dataLen  uint64
	sndNxt   uint32
	sndUna   uint32
	state    uint8
	segments uint16 // sent again
}

func openProbe(dir string, cfg Config) (*probe, error) {
	p := &probe{cfg: cfg, tracefs: dir, page: make([]byte, os.Getpagesize()), apps: map[uint16]int{}, acks: map[uint64]probeEvent{},
		states: map[uint64]uint8{}, counts: make([][len(probeSeries)][]float64, len(cfg.Apps))}
	var filter []string
	for i, app := range cfg.Apps {
		p.apps[app.Port] = i
		filter = append(filter, fmt.Sprintf("sport == %d || dport == %d", app.Port, app.Port))
	}
	p.instance = filepath.Join(dir, "instances", "plait")
	if err := os.Mkdir(p.instance, 0o700); err != nil {
		return nil, fmt.Errorf("probe tcp: make trace instance: %w", err)
	}
	if err := p.enable(strings.Join(filter, " || ")); err != nil {
		return nil, errors.Join(fmt.Errorf("probe tcp: %w", err), p.close())
	}
	return p, nil
}

// enable sets up the trace instance and switches the events on.
func (p *probe) enable(filter string) error {
	set := func(file, text string) error { return os.WriteFile(filepath.Join(p.instance, file), []byte(text), 0) }
	if err := errors.Join(set("buffer_size_kb", fmt.Sprint(probeBufferKiB)), set("trace_clock", "mono")); err != nil {
		return err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	p.origin = uint64(now.Nano() - time.Since(p.cfg.Origin).Nanoseconds())
	pipes, err := filepath.Glob(filepath.Join(p.instance, "per_cpu", "cpu*", "trace_pipe_raw"))
	if err != nil {
		return err
	}
	for _, path := range pipes {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		p.pipes = append(p.pipes, fd)
	}
	if err := p.define(); err != nil {
		return err
	}
	for i, event := range probeEvents {
		dir := filepath.Join("events", event.name)
		text, err := os.ReadFile(filepath.Join(p.instance, dir, "format"))
		if err != nil {
			return fmt.Errorf("%w: this kernel does not have the tracepoint", err)
		}
		if p.formats[i], err = parseTraceFormat(string(text), event.fields...); err != nil {
			return fmt.Errorf("%s: %w", event.name, err)
		}
		if err := errors.Join(set(filepath.Join(dir, "filter"), filter), set(filepath.Join(dir, "enable"), "1")); err != nil {
			return err
		}
	}
	return nil
}

// define makes retransmitEvent.
func (p *probe) define() error {
	text, err := os.ReadFile(filepath.Join(p.tracefs, "events/tcp/tcp_retransmit_skb/format"))
	if err != nil {
		return fmt.Errorf("%w: this kernel does not have the tracepoint", err)
	}
	event := retransmitEvent
	if f, err := parseTraceFormat(string(text)); err == nil && f.fields["err"].size > 0 { // newer kernels also report what could not be sent
		event += " err=$err:s32"
	}
	if err := p.dynamic(event); err != nil {
		return fmt.Errorf("%w: %w", errNoEventProbes, err)
	}
	return nil
}

// dynamic makes or removes an event. Opening the file to overwrite it would remove those of others.
func (p *probe) dynamic(line string) error {
	f, err := os.OpenFile(filepath.Join(p.tracefs, "dynamic_events"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

func (p *probe) sample(int, time.Duration) error {
	p.events = p.events[:0]
	for _, fd := range p.pipes {
		if err := p.drain(fd); err != nil {
			return fmt.Errorf("probe tcp: %w", err)
		}
	}
	slices.SortStableFunc(p.events, func(a, b probeEvent) int { return cmp.Compare(a.at, b.at) })
	for i := range p.events {
		p.count(&p.events[i])
	}
	return nil
}

// drain decodes everything one CPU has recorded.
func (p *probe) drain(fd int) error {
	for {
		n, err := unix.Read(fd, p.page)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN || err == nil && n == 0:
			return nil
		case err != nil:
			return fmt.Errorf("read trace: %w", err)
		}
		if err := traceEvents(p.page[:n], p.decode); err != nil {
			return err
		}
	}
}

// decode appends an event of the applications to events. Every event begins with its type (common_type).
func (p *probe) decode(at uint64, event []byte) {
	kind := -1
	for i := range p.formats {
		if len(event) >= 2 && p.formats[i].get(event, "common_type") == uint64(p.formats[i].id) {
			kind = i
		}
	}
	if kind < 0 {
		return
	}
	f := p.formats[kind]
	app, ok := p.apps[uint16(f.get(event, "sport"))]
	if !ok {
		if app, ok = p.apps[uint16(f.get(event, "dport"))]; !ok {
			return
		}
	}
	e := probeEvent{at: time.Duration(at - p.origin), kind: kind, app: app}
	switch kind {
	case eventProbe:
		e.socket, e.dataLen = f.get(event, "sock_cookie"), f.get(event, "data_len")
		e.sndNxt, e.sndUna = uint32(f.get(event, "snd_nxt")), uint32(f.get(event, "snd_una"))
	case eventState:
		e.socket, e.state = f.get(event, "skaddr"), uint8(f.get(event, "cong_state"))
	case eventRetransmit:
		if f.get(event, "err") != 0 {
			return
		}
		e.socket, e.segments = f.get(event, "skaddr"), uint16(f.get(event, "segments"))
	}
	p.events = append(p.events, e)
}

// count brings the counts up to date with one event.
//
// tcp_probe comes before the segment is processed and shows no ACK number, so a segment is known to be a duplicate ACK
// when the next one of the socket comes: it carried no data, there was data outstanding, and snd_una did not move.
func (p *probe) count(e *probeEvent) {
	switch e.kind {
	case eventProbe:
		last, ok := p.acks[e.socket]
		if ok && last.dataLen == 0 && last.sndNxt != last.sndUna && e.sndUna == last.sndUna {
			p.add(&last, countDupACK, 1)
		}
		p.acks[e.socket] = *e
	case eventState:
		p.states[e.socket] = e.state
	case eventRetransmit:
		switch p.states[e.socket] {
		case caRecovery:
			p.add(e, countFast, e.segments)
		case caLoss:
			p.add(e, countTimeout, e.segments)
		default: // a tail loss probe: nothing else is sent again before loss is seen
			p.add(e, countProbe, e.segments)
		}
	}
}

// add counts packets of an event in the interval it falls into: index k is ((k-1) Every, k Every].
func (p *probe) add(e *probeEvent, what int, packets uint16) {
	k := max(1, int((e.at+p.cfg.Every-1)/p.cfg.Every))
	values := &p.counts[e.app][what]
	for len(*values) < k {
		*values = append(*values, 0)
	}
	(*values)[k-1] += float64(packets)
}

func (p *probe) finish(end time.Duration, out *Outcome) error {
	err := p.sample(0, 0)
	intervals := int((end + p.cfg.Every - 1) / p.cfg.Every) // the last one may be incomplete
	for i, app := range p.cfg.Apps {
		for what, name := range probeSeries {
			values, total := p.counts[i][what], 0.0
			for _, v := range values {
				total += v
			}
			out.set(app.Name, name, total)
			series := make([]float64, max(intervals, len(values)))
			copy(series, values)
			out.Series = append(out.Series, p.cfg.series(app.Name+"."+name, "packets", "", 1, series))
		}
	}
	return errors.Join(err, p.close())
}

// close removes the trace instance, and with it all it has switched on, then the event that it defined.
func (p *probe) close() error {
	var errs []error
	for _, fd := range p.pipes {
		errs = append(errs, unix.Close(fd))
	}
	errs = append(errs, os.Remove(p.instance))
	if _, err := os.Stat(filepath.Join(p.tracefs, "events/plait/retransmit")); err == nil {
		errs = append(errs, p.dynamic("-:plait/retransmit"))
	}
	return errors.Join(errs...)
}

package daemon

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"plait.dev/plait/bpf"
	"plait.dev/plait/signals"
)

// inside is a daemon in this process, so that a test can make its kernel half refuse what it asks for. Nothing else runs in it.
func (h *host) inside(congestion string, log *bytes.Buffer) *Daemon {
	h.Helper()
	path := h.dir + "/plait.yaml"
	h.write(path, h.dir+"/control", congestion)
	c, err := ReadConfig(path)
	h.must(err)
	var d *Daemon
	h.in(func() (err error) {
		d, err = open(c, Options{ConfigPath: path, Log: log})
		return err
	})
	h.Cleanup(func() { h.in(d.close) })
	return d
}

// small puts a map with room for n entries before the daemon; the kernel half goes on with its own.
func (h *host) small(d *Daemon, name string, n uint32) {
	h.Helper()
	whole := d.kernel.Maps[name]
	h.Cleanup(func() { whole.Close() })
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: whole.Type(), KeySize: whole.KeySize(), ValueSize: whole.ValueSize(), MaxEntries: n, Flags: whole.Flags()})
	h.must(err)
	d.kernel.Maps[name] = m
}

// The daemon is replaced by another while connections are busy, after plait down and after its death: they go on, and are taken again.
func TestUpgrade(t *testing.T) {
	for name, end := range map[string]func(*host, *process){
		"down": func(h *host, p *process) { _, err := p.Stop(h.Context()); h.must(err) },
		"kill": func(h *host, p *process) { p.kill(); h.cleanup(p) }, // plait down, before Linux 6.4
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p := h.up(takeAll)
			pairs := []pair{h.connect(0, ""), h.connect(0, ""), h.connect(0, "")}
			quiet := h.busy(pairs)
			time.Sleep(300 * time.Millisecond) // of traffic
			end(h, p)
			begin := time.Now()
			p = h.up(takeAll + "\n  policy: fixed:hybla")
			t.Logf("up again after %v", time.Since(begin).Round(time.Millisecond))
			for _, c := range pairs {
				h.uses("with the next daemon", c, bpf.Name, bpf.Name)
			}
			h.eventually(20*time.Second, "the next daemon has all senders", func() bool {
				return !slices.ContainsFunc(pairs, func(c pair) bool {
					policy, _ := h.wanted(p, c.server.LocalAddr().String())
					return policy != "fixed:hybla"
				})
			})
			time.Sleep(stale) // in which nothing of the old one may send them back
			quiet()
			for _, c := range pairs {
				h.uses("in the end", c, bpf.Name, bpf.Name)
			}
			if c := h.status(p).Counters; c["attached"] != 6 || c["refused"] != 0 || c["fell_back"] != 0 {
				t.Errorf("counters %v, want both ends of 3 connections attached, and no trouble", c)
			}
			h.eventually(2*time.Minute, "each program is in the kernel once", func() bool { // which frees the old ones late, as clean() says
				names := h.programs()
				return len(slices.Compact(slices.Sorted(slices.Values(names)))) == len(names)
			})
			_, err := p.Stop(t.Context())
			h.must(err)
			h.clean("after down")
		})
	}
}

// More connections need a choice than there is room for: the daemon goes on, says so once, and chooses when there is room.
func TestNoRoomForChoices(t *testing.T) {
	h := newHost(t)
	var log bytes.Buffer
	d := h.inside(takeAll+"\n  policy: rtcp", &log)
	h.small(d, "plait_choices", 1)
	// R-TCP needs more than one sample for its choice, and begins with another than it makes of these.
	hear := func(cookie uint64) {
		t.Helper()
		for at := range uint64(20) {
			h.must(d.act(sample{generation: d.kernel.control.Generation, Sample: signals.Sample{
				Cookie: cookie, AtUs: at * 200000, IntervalUs: 200000, SRTTUs: 300000, MinRTTUs: 290000, RateBps: 20e6, DispersionBps: 20e6,
				Delivered: 300, LostSingle: 3, CwndSegments: 300, MSS: 1448,
			}}))
		}
	}
	chosen := func() (cookies []uint64) {
		var c uint64
		var choice bpf.Choice
		for it := d.kernel.Maps["plait_choices"].Iterate(); it.Next(&c, &choice); {
			cookies = append(cookies, c)
		}
		return cookies
	}
	hear(1)
	hear(2)
	if got := chosen(); !slices.Equal(got, []uint64{1}) {
		t.Fatalf("choices for %v, want for 1", got)
	}
	if n := strings.Count(log.String(), "no room for the choices"); n != 1 || d.Status().Counters["choices_dropped"] == 0 {
		t.Errorf("said %d times that there is no room, counters %v; want once, and dropped choices", n, d.Status().Counters)
	}
	h.must(d.act(sample{Sample: signals.Sample{Cookie: 1, Closed: true}}))
	hear(2)
	if got := chosen(); !slices.Equal(got, []uint64{2}) {
		t.Errorf("after the first one has ended there are choices for %v, want for 2", got)
	}
}

// Another lever is busy, and whoever asks for the state waits for it: the heartbeat does not.
func TestHeartbeatWhileAsked(t *testing.T) {
	h := newHost(t)
	d := h.inside(takeAll, new(bytes.Buffer))
	d.acks.changing.Lock()
	asked, beaten := make(chan struct{}), make(chan error, 1)
	go func() { d.Status(); close(asked) }()
	time.Sleep(100 * time.Millisecond)
	go func() { beaten <- d.tick() }()
	select {
	case err := <-beaten:
		h.must(err)
	case <-time.After(stale):
		t.Errorf("no heartbeat for %v", stale)
	}
	d.acks.changing.Unlock()
	<-asked
}

// More destinations than there is room for: the oldest drop out of the comparison, and so many slower ones do not end the daemon.
func TestNoRoomForDestinations(t *testing.T) {
	h := newHost(t)
	var log bytes.Buffer
	d := h.inside(takeAll, &log)
	m := d.kernel.Maps["plait_latencies"]
	for round := range 2 {
		for i := range 5000 {
			a := netip.AddrFrom4([4]byte{10, byte(round), byte(i >> 8), byte(i)})
			h.must(m.Put(bpf.Prefix{Address: a.As16()}, bpf.Latency{Managed: bpf.Group{Connections: 1, Bursts: 1}}))
		}
		if n := len(d.Status().Prefixes); n < 3000 || n > 4096 {
			t.Errorf("%d destinations, want most of 4096", n)
		}
	}
	h.must(d.kernel.clearLatencies())
	h.slowerMany(d, 1500)
	h.must(d.revert())
	h.must(d.revert())
	if said := "1024 destinations are given back, and there is room for no more"; d.givenBack() != maxReverted || strings.Count(log.String(), said) != 1 {
		t.Errorf("%d given back, want %d and once in the log: %s", d.givenBack(), maxReverted, said)
	}
}

// The kernel refuses a program: plait does not come up, says which one, and leaves nothing.
func TestProgramRefused(t *testing.T) {
	h := newHost(t)
	spec, linked, err := bpf.Load()
	h.must(err)
	p := spec.Programs["plait_ssthresh"]
	p.Instructions = asm.Instructions{asm.Return().WithMetadata(p.Instructions[0].Metadata)} // returns what it has not set
	k, err := loadKernel(spec, linked, bpf.Control{})
	if k != nil || err == nil || !strings.HasPrefix(err.Error(), "load programs into the kernel: ") || !strings.Contains(err.Error(), "plait_ssthresh") || !strings.HasSuffix(err.Error(), "report this with what uname -r says") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line that names plait_ssthresh", err)
	}
	h.clean("refused")
}

// A plait with congestion off registers nothing, on a kernel before 6.4 neither, where to load the congestion control is to register it: another plait may come up that
// takes connections.
func TestOffRegistersNothing(t *testing.T) {
	h := newHost(t)
	for _, mode := range []Mode{Off, On} {
		spec, _, err := load(Config{Congestion: Lever{Mode: mode}})
		h.must(err)
		if m := spec.Maps[bpf.Name]; m != nil {
			m.Flags = 0 // as bpf.Load does there
		}
		k, err := loadKernel(spec, false, bpf.Control{})
		h.must(err)
		defer func() { h.must(k.Close()) }()
		if is := registered(); is != (mode == On) {
			t.Errorf("congestion %s: registered: %v", mode, is)
		}
	}
}

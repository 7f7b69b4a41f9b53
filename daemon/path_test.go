package daemon

import (
	"io"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"plait.dev/plait/internal/rung"
)

// knownEnds and knownPath are an entry of plait_paths (bpf/path.h).
type (
	knownEnds struct {
		Local, Remote [16]byte
		Netns         uint32
	}
	knownPath struct {
		CapacityBps, LearnedNs, TriedNs, BegunNs uint64
		HandshakeUs                              uint32
		Bursting                                 int32
		Delivered, Padding                       uint32
	}
)

// resuming is a path that an earlier connection has learned.
type resuming struct {
	*switching
	paths       *ebpf.Map
	ends        knownEnds
	handshakeUs uint32
}

// newResuming has a first connection learn the path, and end.
func newResuming(t *testing.T) *resuming {
	rung.Netns(t)
	s := newSwitching(t, "burst", func(uint32, func()) bool { return false })
	r := &resuming{switching: s, paths: s.kernel.Maps["plait_paths"]}
	var known knownPath
	for range 20 { // a busy host brings all ACKs of a train at once, which tells nothing
		s.must(send(s.server, 0, 60<<10))
		s.settles()
		if known = r.known(); known.CapacityBps > 0 {
			break
		}
	}
	if known.CapacityBps == 0 || known.HandshakeUs < 190_000 || known.TriedNs != 0 {
		t.Fatalf("over a path of 200 ms a connection has learned %+v", known)
	}
	r.handshakeUs = known.HandshakeUs
	return r
}

// known is the one path that anything is known of.
func (r *resuming) known() (p knownPath) {
	r.Helper()
	all, n := r.paths.Iterate(), 0
	for all.Next(&r.ends, &p) {
		n++
	}
	r.must(all.Err())
	if n != 1 {
		r.Fatalf("%d paths are known, want that of the server alone", n)
	}
	return p
}

// again makes another connection.
func (r *resuming) again() *switching {
	r.Helper()
	one := *r.switching
	var err error
	one.pair, err = r.connectTo("10.3.0.1", 0, r.ns+"-client", "")
	r.must(err)
	r.Cleanup(func() {
		_, _ = one.server.SetLinger(0), one.client.SetLinger(0) // a test may have closed it
		one.close()
	})
	go func() { _, _ = io.Copy(io.Discard, one.client) }()
	return &one
}

// sends has a burst on the way, and returns its rate. What a connection borrows it takes then.
func (r *resuming) sends(s *switching, bytes int) (bytesPerSecond uint64) {
	r.Helper()
	r.must(send(s.server, 0, bytes))
	return s.info(s.server).Pacing_rate
}

// resumes tries until a new connection's burst goes at a rate: a handshake may take longer than it should.
func (r *resuming) resumes(what string, bytes int, want uint64) (s *switching) {
	r.Helper()
	got := uint64(0)
	for range 10 {
		s = r.again()
		if got = r.sends(s, bytes); got == want {
			return s
		}
		r.must(s.server.SetLinger(0))
		s.server.Close()
	}
	r.Fatalf("%s: none of ten connections began with %d bytes/s, but with %d", what, want, got)
	return nil
}

// over waits until no burst is on the way.
func (r *resuming) over(s *switching) {
	r.Helper()
	s.settles()
	r.eventually(5*time.Second, "no burst is on the way", func() bool { return r.known().Bursting == 0 })
}

// learns sends bursts until one has left word.
func (r *resuming) learns(s *switching) (now knownPath) {
	r.Helper()
	before := r.known().LearnedNs
	r.eventually(time.Minute, "what it has learned is for the next", func() bool {
		r.must(send(s.server, 0, 60<<10))
		r.over(s)
		now = r.known()
		return now.LearnedNs > before
	})
	return now
}

// knows puts down what is known, as of now.
func (r *resuming) knows(change func(p *knownPath)) (p knownPath) {
	r.Helper()
	p = r.known()
	p.CapacityBps, p.LearnedNs = 1<<20, uint64(monotonicNs()) // much less than a train shows on this path
	change(&p)
	r.must(r.paths.Put(r.ends, p))
	return p
}

// A new connection begins with half of what the one before has learned of the path, one at a time, burst by burst until its own first train says what there is.
func TestResumes(t *testing.T) {
	r := newResuming(t)
	known := r.knows(func(*knownPath) {})
	half := known.CapacityBps / 2
	other := r.again()
	s := r.resumes("after one that has ended its bursts", 2000, half) // too little to learn from
	if r.sends(other, 2000) == half {
		t.Error("another one tries the path at the same time")
	}
	r.over(other)
	r.over(s)
	if now := r.known(); now.LearnedNs != known.LearnedNs || now.TriedNs != 0 {
		t.Errorf("what it has not learned itself is put down: %+v", now)
	}
	if got := r.sends(s, 2000); got != half {
		t.Errorf("its next burst begins with %d bytes/s, want %d", got, half)
	}
	r.over(s)
	r.knows(func(p *knownPath) { p.LearnedNs -= 301e9 })
	if got, window := r.sends(s, 2000), s.window(s.server); got <= 1<<20 || window > 12 {
		t.Errorf("a burst of it begins with %d bytes/s and a window of %d packets, from what was learned more than five minutes ago", got, window)
	}
	r.over(s)
	r.knows(func(*knownPath) {})
	if now := r.learns(s); now.CapacityBps <= known.CapacityBps {
		t.Errorf("its own train says more than %d bytes/s, but it leaves %+v", known.CapacityBps, now)
	}
	learned := r.known()
	r.must(send(s.server, 0, 2000))
	r.over(s)
	if now := r.known(); now.LearnedNs != learned.LearnedNs {
		t.Error("a burst without a train counts as new")
	}
	known = r.knows(func(p *knownPath) { p.CapacityBps = 1 << 40 })
	s = r.resumes("where too much is said to be known", 2000, known.CapacityBps/2)
	r.over(s)
	if now := r.learns(s); now.CapacityBps >= known.CapacityBps/2 {
		t.Errorf("its own train says less than %d bytes/s, but it leaves %+v", known.CapacityBps, now)
	}
}

// What is known counts for five minutes, where the handshake took as long as then, and while no other connection tries it; one that tried and ended is not waited for.
func TestResumesWhatIsStillSo(t *testing.T) {
	r := newResuming(t)
	for what, change := range map[string]func(p *knownPath){
		"learned more than five minutes ago": func(p *knownPath) { p.LearnedNs -= 301e9 },
		"where the handshake takes longer":   func(p *knownPath) { p.HandshakeUs /= 2 },
		"where it is over much sooner":       func(p *knownPath) { p.HandshakeUs *= 2 },
		"while another one tries":            func(p *knownPath) { p.TriedNs = uint64(monotonicNs()) },
	} {
		p := r.knows(change)
		if s := r.again(); r.sends(s, 2000) == p.CapacityBps/2 {
			t.Errorf("a connection begins with what was known %s", what)
		}
		r.knows(func(n *knownPath) { *n = p; n.HandshakeUs, n.TriedNs = r.handshakeUs, 0 })
	}
	p := r.knows(func(p *knownPath) { p.TriedNs = uint64(monotonicNs()) - 11e9 })
	r.resumes("after one that tried 11 s ago", 2000, p.CapacityBps/2)
}

// Of several with a burst on the way each takes its share of what is known; who has ended, or never did, counts no more.
func TestSharesPath(t *testing.T) {
	r := newResuming(t)
	first := r.again()
	r.sends(r.switching, 60<<10)
	r.sends(first, 60<<10)
	if p := r.known(); p.Bursting != 2 {
		t.Errorf("two bursts are on the way, and %d are counted", p.Bursting)
	}
	r.settles()
	r.over(first)

	p := r.knows(func(p *knownPath) { p.Bursting, p.BegunNs = 3, uint64(monotonicNs()) })
	s := r.resumes("while three others have a burst on the way", 60<<10, p.CapacityBps/2/4)
	s.settles()
	r.eventually(5*time.Second, "it is over", func() bool { return r.known().Bursting == 3 })
	if got := r.known().Delivered - p.Delivered; got < 42 {
		t.Errorf("%d packets count as delivered, want those of 60 KiB", got)
	}

	r.sends(s, 60<<10)
	r.must(s.server.SetLinger(0))
	s.server.Close()
	r.eventually(5*time.Second, "one that is reset counts no more", func() bool { return r.known().Bursting == 3 })
	for what, change := range map[string]func(p *knownPath){
		"never ended":            func(p *knownPath) { p.Bursting, p.BegunNs = 3, uint64(monotonicNs())-11e9 },
		"ended in another entry": func(p *knownPath) { p.Bursting = -2 },
	} {
		r.knows(change)
		r.sends(first, 60<<10)
		if n := r.known().Bursting; n != 1 {
			t.Errorf("beside some that %s %d bursts are counted, want 1", what, n)
		}
		r.over(first)
	}
}

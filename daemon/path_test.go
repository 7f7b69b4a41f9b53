package daemon

import (
	"errors"
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
		CapacityBps, LearnedNs, TriedNs uint64
		HandshakeUs, MinRTTUs           uint32
	}
)

// resuming is a path that an earlier connection has learned.
type resuming struct {
	*switching
	paths *ebpf.Map
	ends  knownEnds
}

// newResuming has a first connection learn the path, and end.
func newResuming(t *testing.T) *resuming {
	rung.Netns(t)
	s := newSwitching(t, "burst", func(uint32, func()) bool { return false })
	for range 3 {
		s.must(send(s.server, 0, 60<<10))
		s.settles()
	}
	r := &resuming{switching: s, paths: s.kernel.Maps["plait_paths"]}
	known := r.known()
	if known.CapacityBps == 0 || known.MinRTTUs < 190_000 || known.HandshakeUs < 190_000 || known.TriedNs != 0 {
		t.Fatalf("over a path of 200 ms a connection has learned %+v", known)
	}
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

// again makes another connection, and says whether it began with what is known.
func (r *resuming) again() (s *switching, resumed bool) {
	r.Helper()
	before, err := r.kernel.counters()
	r.must(err)
	one := *r.switching
	one.pair, err = r.connectTo("10.3.0.1", 0, r.ns+"-client", "")
	r.must(err)
	r.Cleanup(func() {
		r.must(errors.Join(one.server.SetLinger(0), one.client.SetLinger(0)))
		one.close()
	})
	go func() { _, _ = io.Copy(io.Discard, one.client) }()
	after, err := r.kernel.counters()
	r.must(err)
	return &one, after.Resumed > before.Resumed
}

// resumes tries until one does: a handshake may take longer than it should.
func (r *resuming) resumes(what string) *switching {
	r.Helper()
	for range 10 {
		if s, resumed := r.again(); resumed {
			return s
		}
	}
	r.Fatalf("%s: none of ten connections began with what is known", what)
	return nil
}

// A new connection begins with half of what the one before has learned of the path, one at a time, and its own first train says more than that.
func TestResumes(t *testing.T) {
	r := newResuming(t)
	known := r.known()
	known.CapacityBps = 1 << 20 // much less than a train shows on this path
	r.must(r.paths.Put(r.ends, known))
	s := r.resumes("after one that has ended its bursts")
	if got := s.info(s.server).Pacing_rate; got != known.CapacityBps/2 {
		t.Errorf("it begins with %d bytes/s, want %d", got, known.CapacityBps/2)
	}
	if got := s.state().get("plait_sock", "min_rtt_us"); got != uint64(known.MinRTTUs) {
		t.Errorf("it begins with a least round trip of %d us, want %d", got, known.MinRTTUs)
	}
	if _, resumed := r.again(); resumed {
		t.Error("another one tries the path at the same time")
	}
	r.must(send(s.server, 0, 2000)) // too little to learn from
	s.settles()
	r.eventually(5*time.Second, "its burst is over, and it tries no more", func() bool { return r.known().TriedNs == 0 })
	if now := r.known(); now.LearnedNs != known.LearnedNs {
		t.Error("what it has not learned itself counts as new")
	}
	s = r.resumes("after one that has learned nothing")
	r.must(send(s.server, 0, 60<<10))
	s.settles()
	r.eventually(5*time.Second, "what it has learned is for the next", func() bool { return r.known().LearnedNs > known.LearnedNs })
	if now := r.known(); now.TriedNs != 0 || now.CapacityBps <= known.CapacityBps {
		t.Errorf("its own train says more than %d bytes/s, but it leaves %+v", known.CapacityBps, now)
	}
	known = r.known()
	known.CapacityBps = 1 << 40
	r.must(r.paths.Put(r.ends, known))
	s = r.resumes("where too much is said to be known")
	r.must(send(s.server, 0, 60<<10))
	s.settles()
	r.eventually(5*time.Second, "what it has learned is for the next", func() bool { return r.known().LearnedNs > known.LearnedNs })
	if now := r.known(); now.CapacityBps >= known.CapacityBps/2 {
		t.Errorf("its own train says less than %d bytes/s, but it leaves %+v", known.CapacityBps, now)
	}
}

// What is known counts for five minutes, where the handshake took as long as then, and while no other connection tries it; one that tried and ended is not waited for.
func TestResumesWhatIsStillSo(t *testing.T) {
	r := newResuming(t)
	for what, change := range map[string]func(p *knownPath){
		"learned more than five minutes ago":      func(p *knownPath) { p.LearnedNs -= 301e9 },
		"where the handshake takes longer":        func(p *knownPath) { p.HandshakeUs /= 2 },
		"where the handshake is over much sooner": func(p *knownPath) { p.HandshakeUs *= 2 },
		"while another one tries":                 func(p *knownPath) { p.TriedNs = uint64(monotonicNs()) },
	} {
		p := r.known()
		change(&p)
		before := r.known()
		r.must(r.paths.Put(r.ends, p))
		if _, resumed := r.again(); resumed {
			t.Errorf("a connection begins with what was %s", what)
		}
		r.must(r.paths.Put(r.ends, before))
	}
	p := r.known()
	p.TriedNs = uint64(monotonicNs()) - 11e9
	r.must(r.paths.Put(r.ends, p))
	r.resumes("after one that tried 11 s ago")
}

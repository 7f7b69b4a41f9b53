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
		Delivered, Crowd                         uint32
		CrowdHandshakeUs, Alone                  uint32
		CrowdNs, OverranNs                       uint64
	}
)

// resuming is a path that an earlier connection has learned.
type resuming struct {
	*switching
	paths       *ebpf.Map
	ends        knownEnds
	handshakeUs uint32
}

// newResuming has a connection learn the path. On a busy host handshakes take longer than they should, and all ACKs of a train come at once: then another one does.
func newResuming(t *testing.T) *resuming {
	rung.Netns(t)
	return resumingAfter(t, newSwitching(t, "burst", func(uint32, func()) bool { return false }))
}

// resumingAfter does, with a connection that is there already.
func resumingAfter(t *testing.T, s *switching) *resuming {
	r := &resuming{switching: s, paths: s.kernel.Maps["plait_paths"]}
	for range 20 {
		for range 3 {
			s.must(send(s.server, 0, aBurst))
			s.settles()
		}
		if known := r.known(); known.CapacityBps > 0 {
			r.handshakeUs = known.HandshakeUs
			break
		}
		s = r.again()
	}
	if known := r.known(); known.CapacityBps == 0 || known.HandshakeUs < 190_000 || known.TriedNs != 0 {
		t.Fatalf("over a path of 200 ms connections have learned %+v", known)
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

// resumes has a new connection, whose handshake took as long as that of the one that left word, send a burst at a rate.
func (r *resuming) resumes(what string, bytes int, want uint64) *switching {
	r.Helper()
	s := r.again()
	p := r.known()
	p.HandshakeUs = s.handshakeUs()
	r.must(r.paths.Put(r.ends, p))
	if got := r.sends(s, bytes); got != want {
		r.Fatalf("%s: a connection begins with %d bytes/s, want %d", what, got, want)
	}
	return s
}

func (s *switching) handshakeUs() uint32 {
	s.Helper()
	return uint32(s.state().get("plait_sock", "handshake_us"))
}

// over waits until no burst is on the way.
func (r *resuming) over(s *switching) {
	r.Helper()
	s.settles()
	r.eventually(20*time.Second, "no burst is on the way", func() bool { return r.known().Bursting == 0 })
}

// learns has a connection send bursts until one has left word; where its handshake took too long for that, it is told how long one takes.
func (r *resuming) learns(s *switching) (now knownPath) {
	r.Helper()
	before := r.known().LearnedNs
	r.eventually(time.Minute, "what it has learned is for the next", func() bool {
		s.state().set("plait_sock", "handshake_us", uint64(r.handshakeUs))
		r.must(send(s.server, 0, aBurst))
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

// aTrain goes at once, whatever is known; what is more is paced.
const aTrain, aBurst = 14_000, 60 << 10

// A new connection begins with half of what the one before has learned of the path, one at a time, until its own first train says what there is.
func TestResumes(t *testing.T) {
	r := newResuming(t)
	known := r.knows(func(*knownPath) {})
	half := known.CapacityBps / 2
	other := r.again()
	if r.sends(other, aTrain/7) == half {
		t.Error("a connection borrows for what goes at once")
	}
	r.over(other)
	if now := r.known(); now.LearnedNs != known.LearnedNs || now.TriedNs != 0 {
		t.Errorf("without a train it puts down %+v", now)
	}
	s := r.resumes("after one that has ended its bursts", aBurst, half)
	if r.sends(other, aBurst) == half {
		t.Error("another one tries the path at the same time")
	}
	r.over(other)
	r.over(s)
	if now := r.learns(s); now.CapacityBps <= known.CapacityBps || now.TriedNs != 0 {
		t.Errorf("its own train says more than %d bytes/s, but it leaves %+v", known.CapacityBps, now)
	}
	learned := r.known()
	r.must(send(s.server, 0, aTrain/7))
	r.over(s)
	if now := r.known(); now.LearnedNs != learned.LearnedNs {
		t.Error("a burst without a train counts as new")
	}
	known = r.knows(func(p *knownPath) { p.CapacityBps = 1 << 40 })
	s = r.resumes("where too much is said to be known", aBurst, known.CapacityBps/2)
	r.over(s)
	if now := r.learns(s); now.CapacityBps >= known.CapacityBps/2 {
		t.Errorf("its own train says less than %d bytes/s, but it leaves %+v", known.CapacityBps, now)
	}
}

// Ten packets go at once, at whatever rate, and what follows them waits for as long as they take at it: a rate by which that is longer than a round trip is not borrowed, as a peer
// that lies about its time would leave one, or a link that paused in a burst.
func TestTrickleIsNotLent(t *testing.T) {
	r := newResuming(t)
	crowd := func(p *knownPath, handshakeUs uint32) {
		p.Crowd, p.Alone, p.CrowdHandshakeUs, p.CrowdNs = 6, 0, handshakeUs, uint64(monotonicNs())
	}
	for what, c := range map[string]struct {
		capacity uint64 // bytes/s
		crowd    bool
		lent     bool
	}{
		"nine packets in a round trip, of which half is lent": {9 * 2 * 1448 * 1_000_000, false, false},
		"eleven, of which half is lent":                       {11 * 2 * 1448 * 1_000_000, false, true},
		"one, of a crowd":                                     {1448 * 1_000_000, true, false},
		"three, of a crowd":                                   {3 * 1448 * 1_000_000, true, true},
	} {
		s := r.again()
		us := s.handshakeUs()
		p := r.knows(func(p *knownPath) {
			p.HandshakeUs, p.CapacityBps, p.TriedNs, p.Crowd = us, c.capacity/uint64(us), 0, 0
			if c.crowd {
				crowd(p, us)
			}
		})
		want := p.CapacityBps / 2
		if c.crowd {
			want = p.CapacityBps
		}
		began := time.Now()
		if lent := r.sends(s, aBurst) == want; lent != c.lent {
			t.Errorf("%s: lent %t, want %t", what, lent, c.lent)
		}
		if r.over(s); !c.lent && time.Since(began) > 3*time.Second {
			t.Errorf("%s: without it a burst took %v", what, time.Since(began))
		}
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
		s := r.again()
		p := r.knows(func(p *knownPath) {
			p.HandshakeUs, p.TriedNs = s.handshakeUs(), 0
			change(p)
		})
		if r.sends(s, aBurst) == p.CapacityBps/2 {
			t.Errorf("a connection begins with what was known %s", what)
		}
		r.over(s)
	}
	p := r.knows(func(p *knownPath) { p.TriedNs = uint64(monotonicNs()) - 11e9 })
	r.resumes("after one that tried 11 s ago", aBurst, p.CapacityBps/2)
}

// Of several with a burst on the way each takes its share of what is known; who has ended, or never did, counts no more.
func TestSharesPath(t *testing.T) {
	r := newResuming(t)
	first, small := r.again(), r.again()
	r.sends(r.switching, aBurst)
	r.sends(first, aBurst)
	if p := r.known(); p.Bursting != 2 {
		t.Errorf("two bursts are on the way, and %d are counted", p.Bursting)
	}
	r.sends(small, aTrain)
	if p := r.known(); p.Bursting != 2 {
		t.Errorf("what goes at once counts as one of %d", p.Bursting)
	}
	r.settles()
	small.settles()
	r.over(first)

	p := r.knows(func(p *knownPath) { p.Bursting, p.BegunNs = 3, uint64(monotonicNs()) })
	s := r.resumes("while three others have a burst on the way", aBurst, p.CapacityBps/2/4)
	s.settles()
	r.eventually(20*time.Second, "it is over", func() bool { return r.known().Bursting == 3 })
	if got := r.known().Delivered - p.Delivered; got < 42 {
		t.Errorf("%d packets count as delivered, want those of 60 KiB", got)
	}

	r.sends(s, aBurst)
	r.must(s.server.SetLinger(0))
	s.server.Close()
	r.eventually(20*time.Second, "one that is reset counts no more", func() bool { return r.known().Bursting == 3 })
	for what, change := range map[string]func(p *knownPath){
		"never ended":            func(p *knownPath) { p.Bursting, p.BegunNs = 3, uint64(monotonicNs())-11e9 },
		"ended in another entry": func(p *knownPath) { p.Bursting = -2 },
	} {
		r.knows(change)
		r.sends(first, aBurst)
		if n := r.known().Bursting; n != 1 {
			t.Errorf("beside some that %s %d bursts are counted, want 1", what, n)
		}
		r.over(first)
	}
}

package stripe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"plait.dev/plait/internal/rung"
)

// transfer sends n bytes and returns how long it takes until the last one is read, and the longest time nothing was.
func (s *simSession) transfer(t *testing.T, n int) (took, stall time.Duration) {
	t.Helper()
	data := noise(n, 7)
	go func() {
		_, _ = s.near.Write(data)
		_ = s.near.CloseWrite()
	}()
	start := time.Now()
	last := start
	got := make([]byte, 0, n)
	buf := make([]byte, 64<<10)
	for {
		k, err := s.far.Read(buf)
		got = append(got, buf[:k]...)
		if k > 0 {
			if len(got) > k {
				stall = max(stall, time.Since(last))
			}
			last = time.Now()
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, data) {
		t.Fatal("not the bytes that were sent")
	}
	return last.Sub(start), stall
}

func (s *simSession) close() {
	s.near.Close()
	s.far.Close()
	s.far.cut()
	s.near.cut()
	time.Sleep(time.Second) // the bubble's time ends with the test: each way must have sent the packet it is at
}

// ideal is how long n bytes take at the sum of the rates, with the frames' header.
func ideal(n int, paths []simPath) time.Duration {
	mbps := 0.0
	for _, p := range paths {
		mbps += p.mbps
	}
	return time.Duration(float64(n) * 8 / (mbps * 1e6) * maxFrame / maxPayload * 1e9)
}

func TestSumOfTheLinks(t *testing.T) {
	q := 50 * 1500
	cases := []struct {
		n     int
		paths []simPath
		bound float64
	}{
		{20 << 20, []simPath{{mbps: 2, delay: 15e6, queue: q}, {mbps: 2, delay: 15e6, queue: q}}, 1.03},
		{20 << 20, []simPath{{mbps: 8, delay: 30e6, queue: q}, {mbps: 2, delay: 15e6, queue: q}}, 1.03},
		{20 << 20, []simPath{{mbps: 8, delay: 15e6, queue: q}, {mbps: 8, delay: 30e6, queue: q}}, 1.03},
		{20 << 20, []simPath{{mbps: 2, delay: 5e6, queue: q}, {mbps: 4, delay: 100e6, queue: q}, {mbps: 8, delay: 50e6, queue: q}, {mbps: 16, delay: 10e6, queue: q}}, 1.05},
		{50 << 20, []simPath{{mbps: 200, delay: 5e6, queue: q}, {mbps: 2, delay: 15e6, queue: 250000}}, 1.03},   // 100:1, a queue of 1 s
		{100 << 20, []simPath{{mbps: 1000, delay: 1e6, queue: q}, {mbps: 2, delay: 15e6, queue: 250000}}, 1.15}, // 75 ms until the slow one is known
		{100 << 20, []simPath{{mbps: 1000, delay: 50e6, queue: q}}, 1.25},                                       // a bandwidth-delay product beyond the first window
	}
	if !rung.Full() {
		cases = cases[:2]
	}
	for _, c := range cases {
		c.n /= rung.Times(4, 1)
		t.Run(fmt.Sprint(c.paths), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimSession(t, c.paths...)
				defer s.close()
				took, stall := s.transfer(t, c.n)
				best := ideal(c.n, c.paths)
				copied := uint64(0)
				for _, l := range s.near.Stats() {
					copied += l.CopiedBytes
				}
				t.Logf("%.3f x ideal (%v), longest stall %v, copied %d KB", took.Seconds()/best.Seconds(), best, stall, copied>>10)
				if took.Seconds() > c.bound*best.Seconds() {
					t.Errorf("took %v, %.3f times the ideal %v; want at most %v", took, took.Seconds()/best.Seconds(), best, c.bound)
				}
				if copied > uint64(c.n/20) {
					t.Errorf("%d of %d bytes were copies", copied, c.n)
				}
			})
		})
	}
}

// stallBound is the longest silence a reader may see when a path stops working.
const stallBound = 300 * time.Millisecond

func TestPathFails(t *testing.T) {
	q := 50 * 1500
	paths := []simPath{{mbps: 4, delay: 15e6, queue: q}, {mbps: 4, delay: 15e6, queue: q}}
	for how, fail := range map[string]func(*simSession){
		"silent": func(s *simSession) { s.wires[0].freeze() },
		"closed": func(s *simSession) { s.wires[0].Close() },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimSession(t, paths...)
				defer s.close()
				time.AfterFunc(3*time.Second, func() { fail(s) })
				took, stall := s.transfer(t, 8<<20)
				t.Logf("took %v, longest stall %v", took, stall)
				if stall > stallBound {
					t.Errorf("nothing was read for %v; want at most %v", stall, stallBound)
				}
				rest := 3*time.Second + ideal(8<<20-3*1e6, paths[1:])
				if took > rest*21/20 {
					t.Errorf("took %v; want at most %v and 5 %%", took, rest)
				}
			})
		})
	}
}

// A link drops everything, and what is in its queue arrives unanswered. The other path tells that, though what it brings itself is missing:
// of eleven such failures 16 chunks come twice, 27 where only the first missing one is told.
func TestAnswersFail(t *testing.T) {
	const size = 4 << 20
	twice, failures := uint64(0), rung.Times(3, 11)
	for i := range failures {
		after := time.Duration(2000+20*i) * time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000}, simPath{mbps: 4, delay: 60e6, queue: 75000})
			defer s.close()
			time.AfterFunc(after, func() { s.wires[0].loseAnswers() })
			s.transfer(t, size)
			twice += s.far.Stats()[0].ReceivedBytes - size
		})
	}
	if most := uint64(20 * failures / 11); twice > most*maxPayload {
		t.Errorf("%d chunks came twice; want at most %d", twice/maxPayload, most)
	}
}

func TestAllSilentThenOneBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000}, simPath{mbps: 8, delay: 15e6, queue: 75000})
		defer s.close()
		const out = 60 * time.Second
		time.AfterFunc(2*time.Second, func() { s.wires[0].freeze(); s.wires[1].freeze() })
		time.AfterFunc(2*time.Second+out, func() { s.wires[1].thaw() })
		took, stall := s.transfer(t, 8<<20)
		t.Logf("took %v, longest stall %v", took, stall)
		if stall > out+time.Second {
			t.Errorf("nothing was read for %v; want at most %v and a second", stall, out)
		}
	})
}

func TestPathJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := []simPath{{mbps: 4, delay: 15e6, queue: 75000}, {mbps: 12, delay: 15e6, queue: 75000}}
		s := newSimSession(t, paths[0])
		defer s.close()
		time.AfterFunc(2*time.Second, func() { s.add(t, paths[1]) })
		took, _ := s.transfer(t, 8<<20)
		if want := 2*time.Second + ideal(8<<20-1e6, paths); took > want*21/20 {
			t.Errorf("took %v; want at most %v and 5 %%", took, want)
		}
	})
}

// A stream of 25 Mbit/s over two links of 20: the delay of its blocks, from Write to the reader.
func TestDelayOfAStream(t *testing.T) {
	q := 50 * 1500
	for _, c := range []struct {
		name  string
		mbps  float64
		paths []simPath
		fail  bool
		bound time.Duration // of 99 % of blocks
	}{
		{"both links needed", 25, []simPath{{mbps: 20, delay: 20e6, queue: q}, {mbps: 20, delay: 20e6, queue: q}}, false, 40e6},
		{"both needed, one slower to arrive", 25, []simPath{{mbps: 20, delay: 15e6, queue: q}, {mbps: 20, delay: 30e6, queue: q}}, false, 50e6},
		{"one link would do", 5, []simPath{{mbps: 20, delay: 10e6, queue: q}, {mbps: 20, delay: 100e6, queue: q}}, false, 20e6},
		{"one link fails", 10, []simPath{{mbps: 20, delay: 20e6, queue: q}, {mbps: 20, delay: 20e6, queue: q}}, true, 40e6},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimSession(t, c.paths...)
				defer s.close()
				blocks := rung.Times(300, 1000)
				const every = 10 * time.Millisecond
				block := int(c.mbps * 1e6 / 8 * every.Seconds())
				if c.fail {
					time.AfterFunc(time.Duration(blocks)/2*every, func() { s.wires[0].freeze() })
				}
				start := time.Now()
				go func() {
					for i := range blocks {
						time.Sleep(time.Until(start.Add(time.Duration(i) * every)))
						_, _ = s.near.Write(make([]byte, block))
					}
					_ = s.near.CloseWrite()
				}()
				var delays []time.Duration
				buf := make([]byte, block)
				for i := range blocks {
					if _, err := io.ReadFull(s.far, buf); err != nil {
						t.Fatal(err)
					}
					delays = append(delays, time.Since(start.Add(time.Duration(i)*every)))
				}
				slices.Sort(delays)
				p99, most := delays[blocks*99/100], delays[blocks-1]
				copied := uint64(0)
				for _, l := range s.near.Stats() {
					copied += l.CopiedBytes
				}
				t.Logf("median %v, 99 %% %v, most %v, copied %d KB", delays[blocks/2], p99, most, copied>>10)
				if p99 > c.bound && !c.fail || most > stallBound {
					t.Errorf("99 %% of blocks took up to %v, all up to %v; want %v and %v", p99, most, c.bound, stallBound)
				}
			})
		})
	}
}

func TestPolicies(t *testing.T) {
	q := 50 * 1500
	for _, c := range []struct {
		name   string
		policy Policy // of the second of two equal links
		low    uint64 // KB it carries of 4 MB
		high   uint64
	}{
		{"none", Policy{}, 1900, 2200},
		{"share", Policy{Share: 0.2}, 700, 900},
		{"cap", Policy{CapBytes: 1 << 20}, 900, 1024},
		{"backup", Policy{Backup: true}, 0, 0},
		{"priority", Policy{Priority: 1}, 1500, 2100}, // the first link is full: it helps
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: q}, simPath{mbps: 8, delay: 15e6, queue: q, policy: c.policy})
				defer s.close()
				s.transfer(t, 4<<20)
				if got := s.near.Stats()[1].SentBytes >> 10; got < c.low || got > c.high {
					t.Errorf("the link carried %d KB; want %d to %d", got, c.low, c.high)
				}
			})
		})
	}
}

// What a dialer's policies say holds for what the listener sends, too.
func TestPoliciesForTheListener(t *testing.T) {
	for name, c := range map[string]struct {
		policy    Policy
		low, high uint64 // KB
	}{"cap": {Policy{CapBytes: 1 << 20}, 900, 1024}, "share": {Policy{Share: 0.2}, 700, 900}, "backup": {Policy{Backup: true}, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000}, simPath{mbps: 8, delay: 15e6, queue: 75000, policy: c.policy})
				defer s.close()
				s.near, s.far = s.far, s.near
				s.transfer(t, 4<<20)
				if got := s.far.Stats()[1].ReceivedBytes >> 10; got < c.low || got > c.high {
					t.Errorf("the link carried %d KB; want %d to %d", got, c.low, c.high)
				}
			})
		})
	}
}

func TestBackupTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000}, simPath{mbps: 8, delay: 15e6, queue: 75000, policy: Policy{Backup: true}})
		defer s.close()
		time.AfterFunc(time.Second, func() { s.wires[0].freeze() })
		_, stall := s.transfer(t, 4<<20)
		if stall > stallBound+100*time.Millisecond { // the bytes on their way were all on the link that failed
			t.Errorf("nothing was read for %v", stall)
		}
	})
}

func TestNoPathForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
		defer s.close()
		s.far.paths[1].end(errLinkGone)
		start := time.Now()
		_, err := s.far.Read(make([]byte, 1))
		if took := time.Since(start); !errors.Is(err, ErrNoPath) || took < defaultPatience || took > defaultPatience+time.Second {
			t.Errorf("read ended after %v: %v", took, err)
		}
	})
}

// Paths come, fall silent, recover and go at random, and the stream is whole. The last one stays.
func TestChurn(t *testing.T) {
	for seed := range uint64(rung.Times(2, 8)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			s := newSimSession(t, simPath{mbps: 20, delay: 10e6, queue: 75000})
			defer s.close()
			ended := make(chan struct{})
			defer func() { <-ended }()
			go func() {
				defer close(ended)
				for range 30 {
					time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
					w := s.wires[r.IntN(len(s.wires))]
					switch r.IntN(4) {
					case 0:
						w.Close()
					case 1:
						w.freeze()
						time.AfterFunc(time.Duration(r.IntN(500))*time.Millisecond, w.thaw)
					default:
						s.add(t, simPath{mbps: 1 + 50*r.Float64(), delay: time.Duration(r.IntN(100)) * time.Millisecond, queue: 75000})
					}
				}
				s.add(t, simPath{mbps: 20, delay: 10e6, queue: 75000})
			}()
			s.transfer(t, 5<<20)
		})
	}
}

func TestPeerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
		defer s.close()
		time.Sleep(100 * time.Millisecond) // the ends meet
		s.far.paths[1].end(io.EOF)
		start := time.Now()
		_, err := s.far.Read(make([]byte, 1))
		if took := time.Since(start); !errors.Is(err, ErrNoPath) || took < desertedPatience || took > desertedPatience+time.Second {
			t.Errorf("read ended after %v: %v", took, err)
		}
	})
}

// The peer has everything and closes before it has heard of the end: nothing is lost, so closing is no error.
func TestCloseAtBothEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000}, simPath{mbps: 8, delay: 50e6, queue: 75000})
		if _, err := s.near.Write([]byte("bye")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(s.far, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		go func() { ended <- s.far.Close() }()
		go func() { time.Sleep(40 * time.Millisecond); ended <- s.near.Close() }()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
}

// Flush waits for a reader that pauses, and for links that are gone for a while; after it, Close has nothing to wait for. A deadline ends it.
func TestFlushWaits(t *testing.T) {
	const pause = 3 * closeStall
	for name, c := range map[string]struct {
		n    int64
		hold func(*simSession)
	}{
		"reader": {startWindow*maxPayload + unsentLeast, func(*simSession) { time.Sleep(pause) }},
		"links":  {unsentLeast, func(s *simSession) { s.wires[0].freeze(); time.Sleep(pause); s.wires[0].thaw() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimSession(t, simPath{mbps: 80, delay: 15e6, queue: 750000})
				defer s.close()
				ended := make(chan error, 1)
				go func() {
					_, err := s.far.Write(make([]byte, c.n))
					_ = s.far.SetDeadline(time.Now().Add(closeStall))
					if early := s.far.Flush(); !errors.Is(early, os.ErrDeadlineExceeded) {
						err = errors.Join(err, fmt.Errorf("with a deadline: %w", early))
					}
					_ = s.far.SetDeadline(time.Time{})
					ended <- errors.Join(err, s.far.Flush(), s.far.Close())
				}()
				c.hold(s)
				got, err := io.Copy(io.Discard, s.near)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if got != c.n || err != nil {
					t.Errorf("read %d of %d bytes, %v", got, c.n, err)
				}
			})
		})
	}
}

// What a slow path still carries when the peer has everything keeps neither end from closing: the one that has sent it, or, as plait pipe does, the one
// that has read it.
func TestCloseWaitsForNoSlowPath(t *testing.T) {
	const quick, size = 15 * time.Millisecond, 2 << 20
	ends := map[string]func(*simSession) time.Time{ // when the last byte was read
		"sender": func(s *simSession) (got time.Time) {
			read := make(chan time.Time)
			go func() {
				_, _ = io.Copy(io.Discard, s.far)
				got := time.Now()
				_ = s.far.Close()
				read <- got
			}()
			_, _ = s.near.Write(make([]byte, size))
			_ = s.near.Close()
			return <-read
		},
		"reader": func(s *simSession) time.Time {
			go func() { _, _ = s.near.Write(make([]byte, size)) }()
			_ = s.far.CloseWrite()
			_, _ = io.CopyN(io.Discard, s.far, size)
			got := time.Now()
			s.far.Abort()
			return got
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			for n := range rung.Times(4, 20) { // farewells leave in any order
				synctest.Test(t, func(t *testing.T) {
					s := newSimSession(t, simPath{mbps: 8, delay: quick, queue: 75000}, simPath{mbps: []float64{0.5, 8}[n%2], delay: 300e6, queue: 75000})
					defer s.close()
					if took := time.Since(end(s)); took > 4*quick+time.Millisecond {
						t.Errorf("closed %v after the last byte was read; want at most two round trips of the quick path, %v", took, 4*quick)
					}
				})
			}
		})
	}
}

// A peer that makes up a name of its link for each path fills no memory.
func TestPeerMakesUpLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 1e6, queue: 75000})
		defer s.close()
		var err error
		for i := uint32(2); err == nil && i < 10*maxPaths; i++ {
			near, far := simLink(8, 1e6, 75000)
			var p *path
			if p, err = s.far.attach(far, hello{Path: i, Link: "far", To: fmt.Sprint(i)}, Policy{}, 2e6); err == nil {
				p.end(errGone)
			}
			near.Close()
			far.Close()
		}
		if err == nil || len(s.far.farMeters) != maxPaths {
			t.Errorf("%d links of the peer are counted, %v; want %d", len(s.far.farMeters), err, maxPaths)
		}
	})
}

// A writer that is about to take a chunk when its path ends must not take it along.
func TestEndedPathTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 1, delay: 10e6, queue: 75000})
		defer s.close()
		if _, err := s.near.Write(make([]byte, unsentLeast)); err != nil {
			t.Fatal(err)
		}
		p := s.near.paths[1]
		p.end(nil)
		synctest.Wait() // its writer has ended: what it gathers is its own
		s.near.mu.Lock()
		defer s.near.mu.Unlock()
		if p.fill(); len(p.pieces) != 0 || s.near.out.unsent == 0 {
			t.Errorf("a path that has ended sends %d pieces", len(p.pieces))
		}
	})
}

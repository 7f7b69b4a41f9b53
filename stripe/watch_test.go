package stripe

import (
	"errors"
	"io"
	"math"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// All links fall silent without a sign, for good: no event ends the paths, and TCP would keep them for a quarter of an hour.
func TestSilentForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
		defer s.close()
		s.wires[0].freeze()
		start := time.Now()
		_ = s.near.SetReadDeadline(start.Add(10 * time.Minute))
		_, err := s.near.Read(make([]byte, 1))
		if took := time.Since(start); !errors.Is(err, ErrNoPath) || took < defaultPatience || took > defaultPatience+pathDead+10*time.Second {
			t.Errorf("read ended after %v: %v", took, err)
		}
		if want := "read stripe: no path to the peer for 3m0s"; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	})
}

// A reset of long ago, by a router say, says nothing about a later silence: a new path has shown meanwhile that the peer lives.
func TestSilentLongAfterReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := simPath{mbps: 8, delay: 15e6, queue: 75000}
		s := newSimSession(t, link)
		defer s.close()
		time.Sleep(100 * time.Millisecond) // the ends meet
		s.near.paths[1].end(io.EOF)
		s.add(t, link)
		time.Sleep(time.Minute)
		s.wires[len(s.wires)-1].freeze()
		start := time.Now()
		_ = s.near.SetReadDeadline(start.Add(10 * time.Minute))
		_, err := s.near.Read(make([]byte, 1))
		if took := time.Since(start); !errors.Is(err, ErrNoPath) || took < defaultPatience {
			t.Errorf("read ended after %v: %v", took, err)
		}
	})
}

// On a busy host ticks come late, and some not at all. The rate is of the time that has gone by, not of the ticks.
func TestRateOfLateTicks(t *testing.T) {
	from := time.Now()
	now, p := from, &path{flight: &flight{}}
	const bps = 1e6
	for i := range 100 {
		p.receivedBytes = uint64(bps * now.Sub(from).Seconds())
		p.watch(now)
		p.watch(now) // the same moment again
		now = now.Add(time.Duration(1+i%4) * tickEvery)
	}
	if math.Abs(p.in.bps/bps-1) > 0.01 {
		t.Errorf("%.0f bytes a second, want %.0f", p.in.bps, bps)
	}
}

// A router that has forgotten an idle connection (a NAT that was restarted) answers the listener's packets with a reset. The dialer notices when it asks for a sign of life, and
// makes another path: until then the session lives. If nobody comes, the dialer has died.
func TestRouterForgetsIdlePath(t *testing.T) {
	for name, comes := range map[string]bool{"the dialer comes": true, "it has died": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := simPath{mbps: 8, delay: 15e6, queue: 75000}
				s := newSimSession(t, link)
				defer s.close()
				time.Sleep(100 * time.Millisecond) // the ends meet
				s.wires[0].freeze()
				s.far.paths[1].end(syscall.ECONNRESET)
				time.Sleep(pingIdle + rivalAfter + time.Second)
				if comes {
					s.add(t, link)
				}
				time.Sleep(desertedPatience)
				select {
				case <-s.far.Done():
					if comes {
						t.Error(s.far.err)
					}
				default:
					if !comes {
						t.Error("the listener waits on")
					}
				}
			})
		})
	}
}

// A path that was closed without a farewell leaves time for another one over the same link: after a long silence the listener has closed it, and a connection over a
// satellite takes three round trips of 0.7 s.
func TestPathIsClosedOverSatellite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := simPath{mbps: 8, delay: 350e6, queue: 75000}
		s := newSimSession(t, link)
		defer s.close()
		for _, c := range []*Conn{s.near, s.far} {
			c.paths[1].end(io.EOF)
		}
		time.Sleep(rivalEvery + 3*2*link.delay)
		select {
		case <-s.near.done:
			t.Error(s.near.err)
		case <-s.far.done:
			t.Error(s.far.err)
		default:
		}
	})
}

package stripe

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"plait.dev/plait/internal/rung"
)

// A stream that its first link carries alone stays off one of a higher number, whichever end sends. A stream
// that is more than the first one gives has both.
func TestPriority(t *testing.T) {
	for name, c := range map[string]struct {
		mbps      float64
		priority  int
		low, high float64 // of all bytes, what the second of two links of 8 Mbit/s carries
	}{
		"one link does":    {4, 1, 0, 0.02},
		"both are needed":  {12, 1, 0.25, 0.45},
		"later, but it is": {12, 4, 0.2, 0.45},
	} {
		for _, back := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000}, simPath{mbps: 8, delay: 15e6, queue: 75000, policy: Policy{Priority: c.priority}})
				defer s.close()
				from, to := s.near, s.far
				if back {
					from, to = to, from
				}
				const every = 10 * time.Millisecond
				times := rung.Times(300, 1000)
				block := make([]byte, int(c.mbps*1e6/8*every.Seconds()))
				go func() {
					for start, i := time.Now(), 0; i < times; i++ {
						time.Sleep(time.Until(start.Add(time.Duration(i) * every)))
						_, _ = from.Write(block)
					}
					_ = from.CloseWrite()
				}()
				n, err := io.Copy(io.Discard, to)
				second := s.near.Stats()[1]
				if share := float64(second.SentBytes+second.ReceivedBytes) / float64(n); err != nil || int(n) != times*len(block) || share < c.low || share > c.high {
					t.Errorf("%s, to the dialer %v: the second link carried %.2f of %d bytes, %v; want %v to %v", name, back, share, n, err, c.low, c.high)
				}
			})
		}
	}
}

// What no link can be used for is refused before anything is tried, in a program as on the command line.
func TestPolicyOutOfRange(t *testing.T) {
	for _, bad := range []Policy{{Share: -1}, {Share: 2}, {Priority: -1}, {Priority: 21}, {CapBytes: maxPayload - 1}} {
		if _, err := Listen(&Config{Key: NewKey(), Peers: []PublicKey{{}}, Links: map[string]Policy{"lo": bad}}, "127.0.0.1:0"); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	if err := (Policy{Share: 1, Priority: 20, CapBytes: maxPayload}).Validate(); err != nil {
		t.Error(err)
	}
}

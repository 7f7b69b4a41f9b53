package stripe

import (
	"testing"
	"testing/synctest"
	"time"

	"plait.dev/plait/internal/rung"
)

// Both ends hold no more than 8 MB and what is on its way, however slow the reader is, and when a link takes nothing for a while.
func TestMemoryIsBounded(t *testing.T) {
	paths := []simPath{{mbps: 200, delay: 20e6, queue: 100 << 10}, {mbps: 100, delay: 100e6, queue: 100 << 10}}
	under := 0.0 // way: bandwidth-delay products, and what queues hold
	for _, p := range paths {
		under += p.mbps*1e6/8*2*p.delay.Seconds() + float64(p.queue)
	}
	limit := startWindow*maxFrame + int(under)
	for name, c := range map[string]struct {
		pause time.Duration // of the reader, after 64 KB
		meet  func(s *simSession)
	}{
		"slow reader":   {50 * time.Millisecond, func(*simSession) {}},
		"no reader":     {time.Hour, func(*simSession) {}},
		"a link stalls": {0, func(s *simSession) { s.wires[1].freeze() }},
		"all links stall": {0, func(s *simSession) {
			for _, w := range s.wires {
				w.freeze()
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a link stalls" { // the other carries for all that time
				rung.Long(t)
			}
			synctest.Test(t, func(t *testing.T) {
				s := newSimSession(t, paths...)
				defer s.close()
				defer s.far.Abort()
				defer s.near.Abort()
				go func() {
					data := make([]byte, 1<<20)
					for {
						if _, err := s.near.Write(data); err != nil {
							return
						}
					}
				}()
				go func() {
					buf := make([]byte, 64<<10)
					for {
						if _, err := s.far.Read(buf); err != nil {
							return
						}
						select {
						case <-time.After(c.pause):
						case <-s.far.done:
						}
					}
				}()
				sender, receiver := 0, 0
				for i := range rung.Times(300, 600) {
					if i == 100 {
						c.meet(s)
					}
					time.Sleep(10 * time.Millisecond)
					s.near.mu.Lock()
					sender = max(sender, s.near.out.chunks.len()*maxPayload)
					s.near.mu.Unlock()
					s.far.mu.Lock()
					receiver = max(receiver, s.far.in.held)
					s.far.mu.Unlock()
				}
				t.Logf("sender %d KB, receiver %d KB, limit %d KB", sender>>10, receiver>>10, limit>>10)
				if receiver > limit || sender > limit+unsentMost {
					t.Errorf("sender holds %d bytes, receiver %d; want %d at most, and %d not sent", sender, receiver, limit, unsentMost)
				}
			})
		})
	}
}

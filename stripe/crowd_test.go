package stripe

import (
	"math"
	"testing"
	"time"
)

// Two paths over one link of the dialer's, as a fluid: those that use a link share it equally, and have its queue.
func TestCrowd(t *testing.T) {
	const near, second = 1e6, 10 // bytes per second; ticks
	for name, c := range map[string]struct {
		others  float64       // connections of others on the near link
		greedy  [2]int        // s; from when they take more for 5 s
		far     float64       // bytes per second of each of the listener's links
		less    float64       // how many times less the second one has; 0: not
		phase   float64       // of the second path's queue, where queues are the listener's; cycles
		queue   time.Duration // at most
		share   float64       // of the listener's link of the first path; 0: all
		idle    bool          // the writer is not ahead
		silent  bool          // the first path is, in the end
		carries bool          // the second path, in the end
	}{
		"narrow near link":                    {far: 2e6, queue: 80e6},
		"and another connection":              {far: 2e6, others: 1, queue: 80e6},
		"and two":                             {far: 2e6, others: 2, queue: 80e6},
		"and one that takes more for a while": {far: 2e6, others: 1, greedy: [2]int{5, 45}, queue: 80e6},
		"narrow far links":                    {far: 0.4e6, phase: 0.3, queue: 80e6, carries: true},
		"narrow far links, at the same time":  {far: 0.4e6, queue: 80e6, carries: true},
		"unequal far links, at the same time": {far: 0.45e6, less: 3, queue: 80e6, carries: true},
		"a stream":                            {far: 2e6, queue: 80e6, idle: true, carries: true},
		"no queue":                            {far: 2e6, queue: 1e6, carries: true}, // nothing can be seen
		"the first one has a share":           {far: 2e6, share: 0.2, queue: 80e6, carries: true},
		"the first one is silent":             {far: 2e6, queue: 80e6, silent: true, carries: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			link := newMeter()
			s := scheduler{limit: maxWindow, free: func([]byte) {}}
			for range 2 {
				s.add(&flight{near: link, ends: [2]end{{meter: link}, {meter: newMeter()}}, rttvar: time.Millisecond, lastAck: now})
			}
			s.flights[0].ends[1].Share = c.share
			before := uint64(0)
			for tick := range 60 * second {
				now = now.Add(tickEvery)
				s.unsent = s.maxUnsent()
				if c.idle {
					s.unsent = 0
				}
				if c.silent && tick == 52*second {
					s.flights[0].pingAt = now
				}
				if tick == 57*second { // it has been measured twice
					before = s.flights[1].delivered
				}
				others := c.others
				for _, from := range c.greedy {
					if second := tick / second; second >= from && second < from+5 {
						others *= 2.5
					}
				}
				users := others
				for _, f := range s.flights {
					if s.mayUse(f, now) && !f.silent(now) {
						users++
					}
				}
				if users == others && !c.silent {
					t.Fatalf("after %d s no path may carry anything", tick/second)
				}
				for i, f := range s.flights {
					cycles := float64(tick)/second/3 + float64(i)*c.phase // a saw tooth of 3 s
					f.packetRTT = 30*time.Millisecond + time.Duration(float64(c.queue)*(cycles-math.Floor(cycles)))
					if f.silent(now) {
						continue
					}
					f.lastAck = now
					if s.mayUse(f, now) {
						far := c.far
						if i == 1 && c.less > 0 {
							far /= c.less
						}
						n := uint64(min(far, near/users) / second)
						f.delivered, f.ends[1].sent, s.sent = f.delivered+n, f.ends[1].sent+n, s.sent+n
					}
				}
				s.weigh(now)
			}
			if carries := s.flights[1].delivered > before; carries != c.carries {
				t.Errorf("in the end the second path carries: %v; want %v", carries, c.carries)
			}
		})
	}
}

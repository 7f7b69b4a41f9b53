package daemon

import (
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/signals"
)

// A transfer whose writer is late leaves its window empty, and would send all of it at once into the path's queue: the default policy paces it then. Who has asked for CUBIC gets CUBIC.
func TestLateWriterIsPaced(t *testing.T) {
	rung.Netns(t)
	s := newSwitching(t, "cubic", func(uint32, func()) bool { return false })
	p, err := compile(Lever{Mode: On, Policy: defaultPolicy})
	s.must(err)
	s.must(s.kernel.setPolicy(0, p.kernel))
	over := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		err := send(s.server, 0, 3<<20)
		for late := time.NewTicker(50 * time.Millisecond); err == nil; {
			select {
			case <-over:
				ended <- nil
				return
			case <-late.C:
				err = send(s.server, 0, 20*1448)
			}
		}
		ended <- err
	}()
	paced := func() bool {
		st := s.state()
		i := s.info(s.server)
		return signals.Algorithm(st.get("plait_sock", "algorithm")) == signals.Cubic && i.Snd_cwnd > i.Unacked+20 && st.get("plait_sock", "pacing_ours") == 1
	}
	s.eventually(time.Minute, "a writer who is late is paced", paced)
	s.to("cubic")
	s.eventually(10*time.Second, "CUBIC is not paced", func() bool { return s.state().get("plait_sock", "pacing_ours") == 0 })
	for range 20 {
		time.Sleep(20 * time.Millisecond)
		if paced() {
			t.Fatal("CUBIC is paced")
		}
	}
	close(over)
	s.must(<-ended)
}

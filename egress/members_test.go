package egress

import (
	"testing"
	"time"
)

// A connection keeps its group while it is used, and for a while after that.
func TestMembersForget(t *testing.T) {
	g, now := members{young: map[uint32]member{}, began: time.Unix(1e9, 0)}, time.Unix(1e9, 0)
	for i, want := range []bool{true, true, true, true, false} {
		if g.join(1, true); i == 0 {
			g.join(2, false)
		}
		g.forget(now.Add(time.Duration(i) * memberFor * 3 / 5))
		if _, is := g.known(2); is != want {
			t.Errorf("after %d steps the connection nobody uses is known: %v", i, is)
		}
		if m, is := g.known(1); !is || !m.heldOut {
			t.Errorf("after %d steps: %v, %+v of the connection in use", i, is, m)
		}
	}
	g.leave(1)
	if m, is := g.known(1); is || !m.out {
		t.Errorf("%v, %+v of a connection that has left", is, m)
	}
}

package bgp

import (
	"testing"
	"time"
)

// Attempts to connect do not hide for how long a session has been down.
func TestSince(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC) }
	s := Session{}
	for minute, state := range []State{Connect, Idle, Connect, OpenSent, OpenConfirm, Established, Established, Idle, Connect, Idle, Shut} {
		s.turn(state, at(minute))
		want := at(0)
		if minute >= 5 {
			want = at(5)
		}
		if minute >= 7 {
			want = at(7)
		}
		if s.State != state || s.Since != want {
			t.Errorf("minute %d: got %v since %v, want %v since %v", minute, s.State, s.Since, state, want)
		}
	}
}

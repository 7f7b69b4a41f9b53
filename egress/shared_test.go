package egress

import (
	"testing"
	"time"
)

// Two exits that are busy twice in a row are tried, and not again before that is due; one that shares stands by until it is tried anew.
func TestShares(t *testing.T) {
	s, at := NewShares(), time.Unix(1e9, 0)
	pair := Pair{"b", "a", client}
	both := []WayLoad{{Exit: "a", Client: client, Best: true, Bytes: 1e6}, {Exit: "b", Client: client, Bytes: 1e6}}
	look := func(after time.Duration, loads []WayLoad, tried, over int) {
		t.Helper()
		at = at.Add(after)
		if got, gone := s.Look(loads, at, 9); len(got) != tried || len(gone) != over || tried > 0 && got[0] != pair {
			t.Fatalf("tried %v, over %v; want %d and %d", got, gone, tried, over)
		}
	}
	look(time.Second, both, 0, 0)
	look(time.Second, both, 1, 0)
	look(time.Second, both, 0, 0) // it goes on
	s.Unlike(pair, at)
	look(unlikeFor-time.Second, both, 0, 0)
	if got, _ := s.Look(both, at.Add(time.Second), 0); len(got) != 0 {
		t.Fatalf("tried %v, and none may be now", got)
	}
	look(time.Second, both, 1, 0)
	s.Found(pair, false, at)
	look(apartFor-time.Second, both, 0, 0)
	look(time.Second, both, 1, 0)
	s.Found(pair, true, at)
	if got := s.Shared("b", client); got != "a" || s.Shared("a", client) != "" || s.Clients()["b"] != 1 {
		t.Errorf("b shares with %q, a with %q, clients %v", got, s.Shared("a", client), s.Clients())
	}
	look(sharedFor-time.Second, both[:1], 0, 0) // b stands by
	look(time.Second, both[:1], 0, 1)
	if s.Shared("b", client) != "" || len(s.known) != 0 {
		t.Errorf("after %v: %v", sharedFor, s.known)
	}
	look(time.Second, []WayLoad{{Client: client, Best: true, Bytes: 1e6}, both[1]}, 0, 0)
	look(time.Second, []WayLoad{{Client: client, Best: true, Bytes: 1e6}, both[1]}, 0, 0)
	look(time.Second, both, 0, 0)
	look(time.Second, both, 1, 0)
	look(time.Second, []WayLoad{{Exit: "c", Client: client, Best: true, Bytes: 1e6}, both[1]}, 0, 0) // the best path moves while it goes on,
	look(time.Second, nil, 0, 0)                                                                     // and the transfer ends
	s.Found(pair, false, at)
	look(apartFor, nil, 0, 0)
	look(time.Second, []WayLoad{both[0], {Exit: "b", Client: client, Bytes: busy - 1}}, 0, 0)
	if len(s.known) != 0 {
		t.Errorf("of an exit that brings little: %v", s.known)
	}
}

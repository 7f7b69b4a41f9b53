package ackpath

import (
	"testing"
	"time"
)

// A busy sender answers late what was sent together, one hello behind the other. That is one moment of it, and one round trip.
func TestBurstOfHellosCountsOnce(t *testing.T) {
	const least, late = 10 * time.Millisecond, 60 * time.Millisecond
	var w Way
	at, nonce := begin, uint64(0)
	round := func(hellos int, rtt time.Duration) {
		at = at.Add(HelloEvery)
		if !w.Ask(at) {
			t.Fatal("no hello is due")
		}
		first := nonce
		for range hellos {
			nonce++
			w.Asked(at, nonce)
		}
		for i := range nonce - first {
			w.Answered(at.Add(rtt+time.Duration(i)*time.Millisecond), first+1+i, true)
		}
	}
	for range rttsKept {
		round(16, least)
	}
	round(16, late)
	if got := w.RTT(); got != least {
		t.Errorf("after a late burst the shortest of the last %d is %v, want %v", rttsKept, got, least)
	}
	for range rttsKept - 1 {
		round(1, late)
	}
	if got := w.RTT(); got != late {
		t.Errorf("after %d late ones it is %v, want %v", rttsKept, got, late)
	}
}

package stripe

import (
	"testing"
	"time"
)

// A path whose TCP repairs a loss is late by a round trip, and not silent; one whose TCP hears nothing is, and at once if it did hear.
func TestSilenceAndRepair(t *testing.T) {
	begin := time.Unix(1000, 0)
	ms := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Millisecond) }
	for name, tc := range map[string]struct {
		heard time.Time
		from  time.Time
	}{
		"TCP hears nothing":               {time.Time{}, ms(440)},
		"TCP heard before it was sent":    {ms(-1), ms(440)},
		"TCP fell silent at once":         {ms(20), ms(340)},
		"TCP fell silent on the way":      {ms(200), ms(370)},
		"TCP hears, then no more":         {ms(420), ms(520)},
		"TCP hears, but a proxy's answer": {ms(900), ms(780)},
	} {
		f := &flight{ends: [2]end{{meter: newMeter()}, {meter: newMeter()}}, srtt: 340 * time.Millisecond, rttvar: 10 * time.Millisecond, heard: tc.heard}
		f.put(&chunk{size: maxPayload}, begin)
		if got := f.silentSince(); !got.Equal(tc.from) {
			t.Errorf("%s: silent from %v on, not %v", name, got.Sub(begin), tc.from.Sub(begin))
		}
	}
}

// A peer that says what has come, and next to nothing of the path it came over, has no more kept of that path than two windows.
func TestPathWithoutAcknowledgementsIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &scheduler{free: func([]byte) {}, limit: maxWindow}
	f := &flight{ends: [2]end{{meter: newMeter()}, {meter: newMeter()}}, srtt: time.Second}
	s.add(f)
	for n := uint64(1); n <= 4*maxWindow; n++ {
		now = now.Add(10 * time.Millisecond)
		if s.write([]byte{1}, now) == 0 || s.take(f, now) == nil {
			break
		}
		if err := s.ack(f, n/1000, n, n+maxWindow, 0, now); err != nil {
			t.Fatal(err)
		}
		f.pingAt, f.lastAck, f.heard, f.srtt = time.Time{}, now, now, time.Hour // the peer answers, slower and slower
	}
	if f.fifo.len() > 2*maxWindow {
		t.Errorf("%d chunks are kept of a path; want at most %d", f.fifo.len(), 2*maxWindow)
	}
	if f.fifo.len() < maxWindow {
		t.Errorf("the path was stopped at %d chunks", f.fifo.len())
	}
}

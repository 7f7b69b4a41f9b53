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

package traffic

import (
	"slices"
	"testing"
	"time"
)

func TestSourceKeepsItsRate(t *testing.T) {
	for _, rate := range []float64{0.001, 0.3, 1.7, 25, 999.9} {
		s := newSource(at(500), rate)
		k := int64(time.Hour / s.every)
		want := rate * 1e6 / 8 * (time.Duration(k) * s.every).Seconds()
		if got := float64(s.offset(k)); got > want+1 || got < want-1 {
			t.Errorf("%g Mbit/s: %g bytes in an hour, want %g", rate, got, want)
		}
		if first := s.offset(1); first < chunkMinBytes-1 || s.every < chunkEvery {
			t.Errorf("%g Mbit/s: chunks of %d bytes every %v", rate, first, s.every)
		}
		if s.produced(0) != at(500) || s.produced(3) != at(500)+3*s.every {
			t.Errorf("%g Mbit/s: chunks at %v and %v", rate, s.produced(0), s.produced(3))
		}
	}
}

func TestDelaysFromProductionToLastByte(t *testing.T) {
	// 0.8 Mbit/s: 1000 bytes every 10 ms, at 0, 10, 20, 30 ms.
	d := delays{source: newSource(0, 0.8)}
	d.receive(at(20), 999)
	d.receive(at(25), 1)     // chunk 0, produced at 0
	d.receive(at(100), 2500) // the network stood still: chunks 1 and 2 at once, and half of 3
	d.receive(at(110), 500)
	if want := []float64{25, 90, 80, 80}; !slices.Equal(d.ms, want) {
		t.Errorf("delays %v, want %v", d.ms, want)
	}
}

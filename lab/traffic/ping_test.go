package traffic

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

func TestEchoMessage(t *testing.T) {
	m := echo4.message(5001, 7)
	// A message is intact if the sum over all of it, checksum included, comes out as zero (RFC 1071).
	if sum := checksum(m); sum != 0 {
		t.Errorf("checksum over the message %#x, want 0", sum)
	}
	if len(m) != pingBytes || m[0] != 8 || binary.BigEndian.Uint16(m[4:]) != 5001 || binary.BigEndian.Uint16(m[6:]) != 7 {
		t.Errorf("message % x", m[:8])
	}
	if _, ok := echo4.parse(m, 5001); ok {
		t.Error("took a request for an answer")
	}
	m[0] = 0
	if seq, ok := echo4.parse(m, 5001); !ok || seq != 7 {
		t.Errorf("answer: sequence %d, %v", seq, ok)
	}
	if _, ok := echo4.parse(m, 5002); ok {
		t.Error("took an answer to another")
	}
	if _, ok := echo4.parse(m[:7], 5001); ok {
		t.Error("took a cut message")
	}
}

func TestTrips(t *testing.T) {
	var trips trips
	for i := range 4 {
		trips.send(at(100 * i))
	}
	trips.receive(at(310), 1) // late: after request 3
	trips.receive(at(320), 3)
	trips.receive(at(330), 3)     // a copy
	trips.receive(at(340), 60000) // to no request of ours
	if got := trips.patience(); got != pingLinger {
		t.Errorf("patience %v with two answers missing, want %v", got, pingLinger)
	}
	trips.receive(at(350), 0)
	out := trips.outcome(at(1300))
	if want := []float64{210, 20, 350}; !slices.Equal(out.Samples[0].Values, want) {
		t.Errorf("round trips %v, want %v", out.Samples[0].Values, want)
	}
	for name, want := range map[string]float64{"count": 4, "lost_percent": 25, "min_ms": 20, "max_ms": 350, "p50_ms": 210} {
		if got := out.Metrics[name]; got != want {
			t.Errorf("%s = %g, want %g", name, got, want)
		}
	}
}

func TestTripsPatience(t *testing.T) {
	var trips trips
	trips.send(0)
	trips.receive(at(700), 0)
	if got := trips.patience(); got != 0 {
		t.Errorf("patience %v with nothing to come", got)
	}
	trips.send(at(800))
	if got := trips.patience(); got != at(1400) {
		t.Errorf("patience %v after a round trip of 700 ms, want twice that", got)
	}
}

// TestTripsCutShort: of requests 100 ms apart that take 300 ms each, the last three are on their way at the end.
func TestTripsCutShort(t *testing.T) {
	var trips trips
	for i := range 20 {
		trips.send(at(100 * i))
		if i >= 3 && i != 3+4 { // request 4 is lost
			trips.receive(at(100*i), uint16(i-3))
		}
	}
	if got, want := trips.outcome(at(1999)).Metrics["lost_percent"], round(100./17, 3); got != want {
		t.Errorf("%g %% lost, want 1 of 17: %g", got, want)
	}
	if got, ok := trips.outcome(at(1399)).Metrics["lost_percent"]; got != 0 {
		t.Errorf("%g %% lost %v before the request was a second old", got, ok)
	}
}

func TestTripsAfterTheSequenceWraps(t *testing.T) {
	var trips trips
	for i := range 1<<16 + 10 {
		trips.send(at(i))
	}
	trips.receive(at(1<<16+10), 5) // request 65541, not request 5
	trips.receive(at(1<<16+11), 65530)
	if want := []time.Duration{at(5), at(17)}; !slices.Equal(trips.rtt, want) {
		t.Errorf("round trips %v, want %v", trips.rtt, want)
	}
}

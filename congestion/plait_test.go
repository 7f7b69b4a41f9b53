package congestion

import (
	"testing"

	"plait.dev/plait/signals"
)

// A transfer changes its control after three samples in a row that say so, and not before.
func TestPlaitTransfer(t *testing.T) {
	random := signals.Sample{Bulk: true, Delivered: 990, LostSingle: 10, MinRTTUs: 100_000, RTTAtLossUs: 110_000}
	overflow := signals.Sample{Bulk: true, Delivered: 990, LostBurst: 10, MinRTTUs: 100_000, RTTAtLossUs: 180_000}
	clean := signals.Sample{Bulk: true, Delivered: 1000, MinRTTUs: 100_000}
	for _, c := range []struct {
		name    string
		samples []signals.Sample
		want    signals.Algorithm
	}{
		{"nothing known", []signals.Sample{{Bulk: true}}, signals.Cubic},
		{"clean", []signals.Sample{clean, clean, clean, clean}, signals.Cubic},
		{"random loss, twice", []signals.Sample{random, random}, signals.Cubic},
		{"random loss, three times", []signals.Sample{random, random, random}, signals.BBR},
		{"random loss, interrupted", []signals.Sample{random, random, clean, random, random}, signals.Cubic},
		{"stays", []signals.Sample{random, random, random, clean, clean, clean, clean}, signals.BBR},
		{"comes back", []signals.Sample{random, random, random, overflow, overflow, overflow}, signals.Cubic},
		{"too little loss", []signals.Sample{{Bulk: true, Delivered: 10000, LostSingle: 9, MinRTTUs: 1, RTTAtLossUs: 1}}, signals.Cubic},
	} {
		p := newPlait()
		var got Choice
		for _, s := range c.samples {
			got = p.Choose(s)
		}
		if got.Algorithm != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, got.Algorithm, got.Because, c.want)
		}
	}
}

func TestPlaitBursts(t *testing.T) {
	p := newPlait()
	for range 4 {
		p.Choose(signals.Sample{Bulk: true, Delivered: 90, LostSingle: 10, MinRTTUs: 100_000, RTTAtLossUs: 100_000})
	}
	if got := p.Choose(signals.Sample{}); got.Algorithm != signals.Burst {
		t.Errorf("between bursts %s, want burst", got.Algorithm)
	}
	if got := p.Choose(signals.Sample{Bulk: true}); got.Algorithm != signals.BBR {
		t.Errorf("the next transfer begins with %s, want bbr as the last one ended", got.Algorithm)
	}
}

package congestion

import (
	"testing"

	"plait.dev/plait/signals"
)

// What transfers get follows from where packets were lost, and only from enough of them.
func TestPlaitTransfer(t *testing.T) {
	random := signals.Sample{Delivered: 98, LostSingle: 2, MinRTTUs: 100_000, RTTAtLossUs: 106_000}
	overflow := signals.Sample{Bulk: true, Delivered: 96, LostBurst: 4, MinRTTUs: 100_000, RTTAtLossUs: 107_000}
	deep := signals.Sample{Bulk: true, Delivered: 96, LostBurst: 4, MinRTTUs: 100_000, RTTAtLossUs: 200_000}
	inBetween := signals.Sample{Bulk: true, Delivered: 98, LostSingle: 2, MinRTTUs: 100_000, RTTAtLossUs: 120_000}
	burst := signals.Sample{Delivered: 98, LostSingle: 2, MinRTTUs: 100_000, RTTAtLossUs: 118_000}
	crowd := signals.Sample{Delivered: 80, LostBurst: 20, MinRTTUs: 100_000, RTTAtLossUs: 118_000}
	small := signals.Sample{Delivered: 8, LostSingle: 1, MinRTTUs: 100_000, RTTAtLossUs: 110_000}
	clean := signals.Sample{Bulk: true, Delivered: 100, MinRTTUs: 100_000}
	few := signals.Sample{Bulk: true, Delivered: 3999, LostSingle: 1, MinRTTUs: 100_000, RTTAtLossUs: 100_000}
	for _, c := range []struct {
		name    string
		samples []signals.Sample
		want    signals.Algorithm
	}{
		{"nothing known", []signals.Sample{{Bulk: true}}, signals.Cubic},
		{"clean", []signals.Sample{clean, clean, clean, clean}, signals.Cubic},
		{"lost at random, three times", []signals.Sample{random, random, random}, signals.Cubic}, // 7/8 and 49/64 of a vote are left
		{"four times", []signals.Sample{random, random, random, random}, signals.BBR},
		{"four times behind the queue of a burst", []signals.Sample{burst, burst, burst, burst}, signals.BBR},
		{"behind the queue of many bursts", []signals.Sample{crowd, crowd, crowd, crowd}, signals.Cubic},
		{"with none lost between", []signals.Sample{random, random, clean, clean, random, random}, signals.BBR},
		{"stays", []signals.Sample{random, random, random, random, clean, clean, clean, clean}, signals.BBR},
		{"comes back", []signals.Sample{random, random, random, random, overflow, overflow, overflow, overflow, overflow, overflow, overflow, overflow}, signals.Cubic},
		{"the queue with which BBR starts", []signals.Sample{random, random, random, random, overflow, overflow, overflow, overflow, overflow, overflow}, signals.BBR},
		{"a short queue that is full each time", []signals.Sample{inBetween, inBetween, inBetween, inBetween}, signals.Cubic},
		{"in a long queue that is not full", []signals.Sample{deep, inBetween, inBetween, inBetween, inBetween}, signals.BBR},
		{"one round trip that was no queue's", []signals.Sample{inBetween, inBetween, deep, inBetween, inBetween, inBetween, inBetween}, signals.Cubic},
		{"none at the first loss, a long one, and some that are not full", []signals.Sample{random, deep, inBetween, inBetween, inBetween, inBetween}, signals.BBR},
		{"one packet in nine behind the queue of a burst", []signals.Sample{small, small, small, small}, signals.BBR},
		{"a queue shorter than the one before", []signals.Sample{deep, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween,
			inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween, inBetween}, signals.Cubic},
		{"both", []signals.Sample{random, overflow, random, overflow, random, overflow, random, overflow}, signals.Cubic},
		{"less than one in a thousand", []signals.Sample{few, few, few, few, few, few}, signals.Cubic},
		{"no round trip known", []signals.Sample{{Delivered: 90, LostSingle: 10}}, signals.Cubic},
	} {
		p := newPlait()
		var got Choice
		for _, s := range c.samples {
			got = p.Choose(s)
		}
		if got.Bulk != c.want || got.Algorithm != signals.Burst {
			t.Errorf("%s: %s and %s for transfers (%s), want burst and %s", c.name, got.Algorithm, got.Bulk, got.Because, c.want)
		}
	}
}

func TestPlaitAggressive(t *testing.T) {
	p := newAggressive()
	for range 9 {
		if got := p.Choose(signals.Sample{Bulk: true, LostBurst: 9, MinRTTUs: 1, RTTAtLossUs: 2}); got.Bulk != signals.BBR {
			t.Errorf("transfers get %s, want bbr", got.Bulk)
		}
	}
}

// A vote is worth an eighth less with each that follows.
func TestPlaitMemory(t *testing.T) {
	p := newPlait().(*plait)
	p.Choose(signals.Sample{LostSingle: 8, MinRTTUs: 1, RTTAtLossUs: 1})
	p.Choose(signals.Sample{LostBurst: 8, MinRTTUs: 1, RTTAtLossUs: 2001})
	if p.random != 0.875 || p.overflow != 1 {
		t.Errorf("votes %g and %g, want 0.875 and 1", p.random, p.overflow)
	}
}

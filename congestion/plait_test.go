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
	several := signals.Sample{Bulk: true, Delivered: 660, LostSingle: 6, MinRTTUs: 100_000, RTTAtLossUs: 106_000, RTTAtLossMinUs: 101_000, RTTAtLossMaxUs: 106_000, LossyRounds: 5}
	drains := signals.Sample{Bulk: true, Delivered: 650, LostBurst: 9, MinRTTUs: 100_000, RTTAtLossUs: 106_000, RTTAtLossMinUs: 106_000, RTTAtLossMaxUs: 150_000, LossyRounds: 2}
	overrun := signals.Sample{Bulk: true, Algorithm: signals.BBR, SRTTUs: 146_000, Delivered: 650, LostBurst: 9, MinRTTUs: 100_000, RTTAtLossUs: 106_000, RTTAtLossMinUs: 145_000, RTTAtLossMaxUs: 150_000, LossyRounds: 6}
	anywhere := signals.Sample{Bulk: true, Algorithm: signals.BBR, Delivered: 650, LostSingle: 9, SRTTUs: 120_000, MinRTTUs: 100_000, RTTAtLossUs: 150_000, RTTAtLossMinUs: 105_000, RTTAtLossMaxUs: 150_000, LossyRounds: 6}
	among := signals.Sample{Bulk: true, Algorithm: signals.BBR, Delivered: 60, LostSingle: 15, SRTTUs: 24_500, MinRTTUs: 20_500, RTTAtLossUs: 25_100, RTTAtLossMinUs: 23_900, RTTAtLossMaxUs: 25_200, LossyRounds: 6}
	begin := signals.Sample{Delivered: 15, LostBurst: 30, SRTTUs: 22_300, MinRTTUs: 23_300, RTTAtLossUs: 24_100, RTTAtLossMinUs: 23_700, RTTAtLossMaxUs: 24_100, LossyRounds: 5}
	much := signals.Sample{Bulk: true, Algorithm: signals.BBR, Delivered: 140, LostSingle: 24, SRTTUs: 34_000, MinRTTUs: 21_300, RTTAtLossUs: 31_000, RTTAtLossMinUs: 24_000, RTTAtLossMaxUs: 36_000, LossyRounds: 6}
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
		{"in several round trips of one sample", []signals.Sample{several}, signals.BBR},
		{"in several, while many begin", []signals.Sample{begin}, signals.Cubic},
		{"in two, while a queue drains", []signals.Sample{drains, drains, drains}, signals.Cubic},
		{"in several, each behind a full queue", []signals.Sample{overrun, overrun, overrun, overrun, overrun, overrun}, signals.Cubic},
		{"in several, behind a full queue among others", []signals.Sample{several, deep, anywhere, anywhere, anywhere, anywhere, anywhere, anywhere}, signals.BBR},
		{"where many BBRs overrun a short queue", []signals.Sample{random, random, random, random, among, among, among, among, among, among, among, among}, signals.Cubic},
		{"much by chance", []signals.Sample{random, random, random, random, much, much, much, much, much, much, much, much}, signals.BBR},
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
		p := newPlait()()
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
	p := newPlait()().(*plait)
	p.Choose(signals.Sample{LostSingle: 8, MinRTTUs: 1, RTTAtLossUs: 1})
	p.Choose(signals.Sample{LostBurst: 8, MinRTTUs: 1, RTTAtLossUs: 2001})
	if p.random != 0.875 || p.overflow != 1 {
		t.Errorf("votes %g and %g, want 0.875 and 1", p.random, p.overflow)
	}
}

// What BBR transfers met in the lab, the queue at the end of each sample and at its last loss in tenths of a millisecond. By chance behind the queue that it made itself, it stays; where it overran a queue beside a CUBIC transfer, it leaves.
func TestPlaitQueueOfBBR(t *testing.T) {
	for _, c := range []struct {
		name    string
		minUs   uint32
		samples [][2]int
		want    signals.Algorithm
	}{
		{"40 ms, 20 Mbit/s, 1 %", 40_000, [][2]int{{65, 36}, {108, 90}, {107, 97}, {17, 24}, {26, 17}, {48, 23}, {38, 39}, {36, 36}, {44, 44}, {34, 30}, {31, 48}, {33, 24}, {97, 26}, {35, 38}, {33, 32}, {53, 48}, {39, 42}, {36, 96}, {41, 30}, {35, 41},
			{56, 22}, {37, 30}, {46, 33}, {32, 31}, {43, 41}, {42, 40}, {46, 41}, {42, 30}, {45, 39}, {71, 71}, {49, 52}, {43, 83}, {23, 18}, {28, 35}, {26, 121}, {22, 39}, {51, 36}, {131, 36}, {43, 34}, {42, 39}, {37, 48}}, signals.BBR},
		{"20 ms, 10 Mbit/s, 3 %", 20_000, [][2]int{{74, 75}, {87, 86}, {87, 76}, {79, 69}, {120, 116}, {131, 137}, {122, 126}, {98, 92}, {90, 81}, {65, 64}, {107, 100}, {131, 95}, {136, 105}, {132, 129}, {64, 68}, {116, 92}, {99, 70}, {85, 77}, {106, 109},
			{126, 99}, {169, 146}}, signals.BBR},
		{"10 packets", 50_000, [][2]int{{114, 111}, {30, 111}, {109, 120}, {107, 117}, {99, 101}, {111, 123}, {112, 112}, {38, 112}, {112, 112}, {58, 116}, {111, 113}, {41, 117}, {113, 112}, {83, 116}, {113, 121}, {63, 112}, {102, 98}, {44, 111}}, signals.Cubic},
		{"30 packets", 50_000, [][2]int{{177, 349}, {185, 339}, {207, 339}, {333, 338}, {142, 344}, {320, 330}, {216, 344}, {193, 342}, {223, 338}, {214, 330}, {340, 350}, {245, 340}}, signals.Cubic},
	} {
		p := &plait{paths: newPaths(), bulk: signals.BBR, votes: votes{random: memory}}
		s := signals.Sample{Bulk: true, Algorithm: signals.BBR, Delivered: 330, LostSingle: 14, MinRTTUs: c.minUs}
		for _, q := range c.samples {
			s.SRTTUs, s.RTTAtLossUs = c.minUs+uint32(100*q[0]), c.minUs+uint32(100*q[1])
			if got := p.Choose(s); c.want == signals.BBR && got.Bulk != c.want {
				t.Fatalf("%s, queue %d: transfers get %s, %s", c.name, q, got.Bulk, got.Because)
			}
		}
		if p.bulk != c.want {
			t.Errorf("%s: transfers get %s, want %s", c.name, p.bulk, c.want)
		}
	}
}

package congestion

import (
	"testing"

	"plait.dev/plait/signals"
)

// Sockets of a path learn from each other: a new one begins with what the others have found, one that errs by chance is outvoted, and who has ended counts no more.
func TestPath(t *testing.T) {
	random := signals.Sample{Delivered: 98, LostSingle: 2, MinRTTUs: 100_000, RTTAtLossUs: 106_000}
	overflow := signals.Sample{Bulk: true, Delivered: 96, LostBurst: 4, MinRTTUs: 100_000, RTTAtLossUs: 107_000}
	clean := signals.Sample{Bulk: true, Delivered: 100, MinRTTUs: 80_000}
	queued := signals.Sample{Bulk: true, Delivered: 98, LostSingle: 2, MinRTTUs: 100_000, RTTAtLossUs: 103_000, RTTAtLossMinUs: 103_000, RTTAtLossMaxUs: 103_000, LossyRounds: 1}
	at := func(s uint64, of signals.Sample) signals.Sample {
		of.AtUs = s * 1_000_000
		return of
	}
	type step struct {
		socket  int // negative: ^socket ends
		sample  signals.Sample
		path    uint64
		samples int
	}
	for _, c := range []struct {
		name  string
		steps []step
		want  signals.Algorithm // of the last step
	}{
		{"a new one where another found a link's losses", []step{{0, random, 1, 4}, {1, signals.Sample{}, 1, 1}}, signals.BBR},
		{"two that have half the votes each", []step{{0, random, 1, 2}, {1, random, 1, 2}}, signals.BBR},
		{"on another path", []step{{0, random, 1, 9}, {1, signals.Sample{}, 2, 1}}, signals.Cubic},
		{"on no path that is known", []step{{0, random, 0, 9}, {1, signals.Sample{}, 0, 1}}, signals.Cubic},
		{"when the other has ended", []step{{0, random, 1, 9}, {-1, random, 1, 1}, {1, at(299, signals.Sample{}), 1, 1}}, signals.BBR},
		{"when the other has ended long ago", []step{{0, random, 1, 9}, {-1, random, 1, 1}, {1, at(600, signals.Sample{}), 1, 1}}, signals.Cubic},
		{"when the other has ended, and others elsewhere since", []step{{0, at(299, random), 1, 9}, {-1, at(299, random), 1, 1}, {1, at(300, signals.Sample{}), 2, 1}, {2, at(599, signals.Sample{}), 1, 1}}, signals.BBR},
		{"when the other has ended on another path", []step{{0, random, 1, 9}, {-1, random, 1, 1}, {1, signals.Sample{}, 2, 1}}, signals.Cubic},
		{"when the other has ended on no path that is known", []step{{0, random, 0, 9}, {-1, random, 0, 1}, {1, signals.Sample{}, 0, 1}}, signals.Cubic},
		{"when the other has ended, and before the clock began anew", []step{{0, at(9000, random), 1, 9}, {-1, random, 1, 1}, {1, signals.Sample{}, 1, 1}}, signals.Cubic},
		{"when the other ends beside it", []step{{0, random, 1, 9}, {1, signals.Sample{}, 1, 1}, {-1, random, 1, 1}, {1, clean, 1, 1}, {2, signals.Sample{}, 1, 1}}, signals.BBR},
		{"when one that found nothing ends after it", []step{{0, random, 1, 9}, {1, clean, 1, 1}, {-1, random, 1, 1}, {-2, clean, 1, 1}, {2, signals.Sample{}, 1, 1}}, signals.BBR},
		{"after one of two that has found little", []step{{0, random, 1, 9}, {1, overflow, 1, 1}, {-1, random, 1, 1}, {-2, overflow, 1, 1}, {2, signals.Sample{}, 1, 1}}, signals.BBR},
		{"whose first vote was beside another's", []step{{0, random, 1, 9}, {-1, random, 1, 1}, {1, overflow, 1, 9}, {2, overflow, 1, 1}, {-2, overflow, 1, 1}, {2, random, 1, 1}}, signals.Cubic},
		{"after one that has one vote more", []step{{0, random, 1, 9}, {-1, random, 1, 1}, {1, random, 1, 1}, {-2, random, 1, 1}, {2, signals.Sample{}, 1, 1}}, signals.BBR},
		{"that meets an overflow where one that has ended found a link's losses", []step{{0, random, 1, 9}, {-1, random, 1, 1}, {1, overflow, 1, 7}, {2, signals.Sample{}, 1, 1}}, signals.Cubic},
		{"when one of two others has ended", []step{{0, overflow, 1, 9}, {1, random, 1, 9}, {-1, overflow, 1, 1}, {2, signals.Sample{}, 1, 1}}, signals.BBR},
		{"that has never seen the path without a queue", []step{{0, clean, 1, 1}, {1, queued, 1, 9}}, signals.Cubic},
		{"alone, by its own round trips", []step{{0, queued, 1, 9}}, signals.BBR},
		{"when the other ends, and with it the shorter round trip", []step{{0, clean, 1, 1}, {1, overflow, 1, 3}, {-1, clean, 1, 1}, {1, overflow, 1, 8}}, signals.Cubic},
		{"one among three that meet a full queue", []step{{0, overflow, 1, 4}, {1, overflow, 1, 4}, {2, overflow, 1, 4}, {3, random, 1, 6}}, signals.Cubic},
		{"one where the link loses, of two that share an address", []step{{0, overflow, 1, 4}, {1, random, 1, 20}}, signals.BBR},
	} {
		begin, sockets, got := newPlait(), map[int]Policy{}, Choice{}
		for _, s := range c.steps {
			if s.socket < 0 {
				sockets[^s.socket].End()
				continue
			}
			if sockets[s.socket] == nil {
				sockets[s.socket] = begin()
			}
			s.sample.Path = s.path
			for range s.samples {
				got = sockets[s.socket].Choose(s.sample)
			}
		}
		if got.Bulk != c.want {
			t.Errorf("%s: transfers get %s (%s), want %s", c.name, got.Bulk, got.Because, c.want)
		}
		for _, p := range sockets {
			p.End()
		}
		if paths := sockets[0].(*plait).paths; len(paths.inUse) > 0 {
			t.Errorf("%s: %d paths are in use when all sockets have ended", c.name, len(paths.inUse))
		}
	}
}

// A socket's least round trip is read as the shortest of its path, of the last 5 to 10 s, where it is not much longer.
func TestPathLeast(t *testing.T) {
	all := newPaths()
	on := all.join(1)
	at := func(s float64, us uint32) signals.Sample {
		return signals.Sample{AtUs: uint64(s * 1e6), MinRTTUs: us}
	}
	for _, c := range []struct {
		atS       float64
		own, want uint32
		joins     bool
	}{
		{0, 20_000, 20_000, false}, {1, 24_000, 24_000, false}, // alone
		{2, 24_000, 20_000, true}, {2, 0, 0, false},
		{3, 26_000, 20_000, false}, {3, 27_000, 27_000, false}, // another host behind the same address
		{4, 19_000, 19_000, false}, {4, 24_000, 19_000, false},
		{5, 24_000, 19_000, false}, {9, 24_000, 19_000, false}, {10, 24_000, 24_000, false},
		{14.9, 23_000, 23_000, false}, {19.9, 25_000, 23_000, false}, {20, 25_000, 25_000, false},
		{31, 26_000, 26_000, false}, // nobody sent for long
	} {
		if c.joins {
			all.join(1)
		}
		if got := on.least(at(c.atS, c.own)); got != c.want {
			t.Errorf("at %v s, least round trip %d us: read as %d, want %d", c.atS, c.own, got, c.want)
		}
	}
}

// Of a host with many clients the last are remembered, and no more than there is room for.
func TestPathsRemembered(t *testing.T) {
	all := newPaths()
	for number := uint64(1); number <= 3*mostEnded; number++ {
		all.pass(number)
		on := all.join(number)
		had := votes{random: float64(number)}
		on.change(votes{}, had)
		all.leave(on, had)
	}
	if n := len(all.ended) + len(all.before); n < mostEnded || n > 2*mostEnded {
		t.Errorf("%d paths are remembered, want %d to twice as many", n, mostEnded)
	}
	for number, want := range map[uint64]float64{1: 0, mostEnded: 0, 2*mostEnded + 1: 2*mostEnded + 1, 3 * mostEnded: 3 * mostEnded} {
		if got := all.remembered(&path{number: number}); got.random != want {
			t.Errorf("path %d: remembered %v votes, want %v", number, got.random, want)
		}
	}
}

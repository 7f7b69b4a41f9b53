package egress

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestCarriers(t *testing.T) {
	a, b, c := Candidate{Exit: "a", RTTUs: 30_000, Cost: 2}, Candidate{Exit: "b", RTTUs: 20_000, Cost: 1}, Candidate{Exit: "c", RTTUs: 27_000, Cost: 1}
	full := func(c Candidate) Candidate { c.Spared = true; return c }
	unknown := func(c Candidate) Candidate { c.RTTUs = 0; return c }
	for _, x := range []struct {
		what string
		s    Strategy
		all  []Candidate
		now  string // in use
		want string
	}{
		{"all at once", Throughput, []Candidate{a, b, c}, "", "a b c"},
		{"not what is full", Steady, []Candidate{a, full(b), c}, "", "a c"},
		{"all are full", Throughput, []Candidate{full(a), full(b)}, "", "a b"},
		{"none", Latency, nil, "a", ""},
		{"the quickest", Latency, []Candidate{a, b, c}, "", "b"},
		{"clearly quicker than the one in use", Latency, []Candidate{a, b, c}, "a", "b"},
		{"hardly quicker", Latency, []Candidate{a, c}, "a", "a"},
		{"the one in use has failed", Latency, []Candidate{a, c}, "b", "c"},
		{"quicker, but full", Latency, []Candidate{a, full(b)}, "a", "a"},
		{"nothing is known", Latency, []Candidate{unknown(a), unknown(b)}, "", "a"},
		{"nothing is known of the one in use", Latency, []Candidate{unknown(a), b}, "a", "b"},
		{"known is used first", Latency, []Candidate{unknown(a), b}, "", "b"},
		{"least cost", Cheap, []Candidate{a, b, c}, "", "b c"},
		{"the cheap ones are full", Cheap, []Candidate{a, full(b), full(c)}, "", "a"},
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(x.s.Carriers(x.all, x.now))), " "); got != x.want {
			t.Errorf("%s, %s: %q carry, want %q", x.s, x.what, got, x.want)
		}
	}
}

// Exits as quick as each other do not take turns.
func TestLatencyStays(t *testing.T) {
	all := []Candidate{{Exit: "a", RTTUs: 20_000}, {Exit: "b", RTTUs: 20_000}}
	first := Latency.Carriers(all, "")
	for i := range 100 {
		all[i%2].RTTUs, all[1-i%2].RTTUs = 20_000, 17_000
		if next := Latency.Carriers(all, slices.Collect(maps.Keys(first))[0]); !maps.Equal(next, first) {
			t.Fatalf("from %v to %v by noise", first, next)
		}
	}
}

package egress

import (
	"slices"
	"testing"
)

// An exit is slow that brings little, late, and that no data needs.
func TestSlow(t *testing.T) {
	const quick, late = 20_000, 90_000
	for _, c := range []struct {
		name  string
		paces []Pace
		want  []string
	}{
		{"little and late", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, false}}, []string{"a"}},
		{"that it has more to send than it takes is what makes it slow", []Pace{{"a", 3_000, late, true}, {"b", 40_000, quick, false}}, []string{"a"}},
		{"nothing", []Pace{{"a", 0, late, false}, {"b", 40_000, quick, false}}, []string{"a"}},
		{"much, though late", []Pace{{"a", 10_000, late, false}, {"b", 40_000, quick, false}}, nil},
		{"little, not late", []Pace{{"a", 3_000, quick, false}, {"b", 40_000, quick, false}}, nil},
		{"not twice as late", []Pace{{"a", 3_000, 300_000, false}, {"b", 40_000, 160_000, false}}, nil},
		{"twice as late, but not by much", []Pace{{"a", 3_000, 60_000, false}, {"b", 40_000, quick, false}}, nil},
		{"data waits for the other", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, true}}, nil},
		{"data waits for a third", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, false}, {"c", 9_000, quick, true}}, nil},
		{"two of three", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, false}, {"c", 0, late, false}}, []string{"a", "c"}},
		{"flows of one exit together", []Pace{{"a", 6_000, late, false}, {"b", 40_000, quick, false}, {"a", 6_000, late, false}}, nil},
		{"one flow of an exit in time", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, false}, {"a", 3_000, quick, false}}, nil},
		{"the only exit", []Pace{{"a", 3_000, late, false}}, nil},
		{"no answer on any", []Pace{{"a", 0, late, false}, {"b", 0, quick, false}}, nil},
		{"no flow", nil, nil},
	} {
		if got := Slow(c.paces); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

package egress

import "testing"

// An exit is slow that brings little, late, and that no data needs.
func TestSlow(t *testing.T) {
	const quick, late = 20_000, 90_000
	for _, c := range []struct {
		name  string
		paces []Pace
		want  bool
	}{
		{"little and late", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, false}}, true},
		{"that it has more to send than it takes is what makes it slow", []Pace{{"a", 3_000, late, true}, {"b", 40_000, quick, false}}, true},
		{"nothing", []Pace{{"a", 0, late, false}, {"b", 40_000, quick, false}}, true},
		{"much, though late", []Pace{{"a", 10_000, late, false}, {"b", 40_000, quick, false}}, false},
		{"little, not late", []Pace{{"a", 3_000, quick, false}, {"b", 40_000, quick, false}}, false},
		{"not twice as late", []Pace{{"a", 3_000, 300_000, false}, {"b", 40_000, 160_000, false}}, false},
		{"twice as late, but not by much", []Pace{{"a", 3_000, 60_000, false}, {"b", 40_000, quick, false}}, false},
		{"data waits for the other", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, true}}, false},
		{"data waits for a third", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, false}, {"c", 9_000, quick, true}}, false},
		{"another exit is as late", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, false}, {"c", 0, late, false}}, true},
		{"flows of one exit together", []Pace{{"a", 6_000, late, false}, {"b", 40_000, quick, false}, {"a", 6_000, late, false}}, false},
		{"one flow of an exit in time", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, false}, {"a", 3_000, quick, false}}, false},
		{"the only exit", []Pace{{"a", 3_000, late, false}}, false},
		{"no answer on any", []Pace{{"a", 0, late, false}, {"b", 0, quick, false}}, false},
		{"that another exit is late is its own affair", []Pace{{"a", 40_000, quick, false}, {"b", 3_000, late, false}}, false},
		{"nothing is known of the other exit's round trips", []Pace{{"a", 3_000, late, false}, {"b", 40_000, 0, false}}, false},
		{"an idle flow of the other exit, of which none are known", []Pace{{"a", 3_000, late, false}, {"b", 40_000, quick, false}, {"b", 0, 0, false}}, true},
		{"an idle flow of its own, likewise", []Pace{{"a", 0, 0, false}, {"a", 3_000, late, false}, {"b", 40_000, quick, false}}, true},
		{"no flow", nil, false},
	} {
		if got := Slow(c.paces, "a"); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

package report

import "testing"

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"bulk.goodput_mbps", "bulk.goodput_mbps", true},
		{"bulk.goodput_mbps", "bulk/1.goodput_mbps", false},
		{"bulk/*.goodput_mbps", "bulk/1.goodput_mbps", true},
		{"bulk/*.goodput_mbps", "bulk.goodput_mbps", false},
		{"*.goodput_mbps", "bulk/1.goodput_mbps", true},
		{"bulk.*", "bulk.p95_ms", true},
		{"a*a", "a", false},
		{"*b*c", "abbc", true},
		{"*b*c", "acb", false},
	} {
		if got := match(test.pattern, test.name); got != test.want {
			t.Errorf("match(%q, %q) = %v", test.pattern, test.name, got)
		}
	}
}

func TestSpell(t *testing.T) {
	for name, want := range map[string][2]string{
		"longest_silence_ms": {"longest silence", "ms"}, "goodput_mbps": {"goodput", "Mbit/s"}, "completion_s": {"completion", "s"},
		"retransmissions": {"retransmissions", ""}, "loss_percent": {"loss", "%"},
		"requests_per_s": {"requests", "1/s"}, "bits_per_second": {"bits", "1/s"},
	} {
		if words, unit := spell(name); [2]string{words, unit} != want {
			t.Errorf("spell(%q) = %q, %q, want %q", name, words, unit, want)
		}
	}
	if got := withUnit("a_mbps", 30.0); got != "a 30\u00a0Mbit/s" {
		t.Errorf("withUnit = %q", got)
	}
}

func TestBetter(t *testing.T) {
	for metric, want := range map[string]int{
		"goodput_mbps": 1, "completion_s": -1, "p95_ms": -1, "segments_retransmitted": -1, "start_s": 0, "requests_per_s": 0, "bits_per_second": 0, "loss_percent": 0,
	} {
		if got := better(metric); got != want {
			t.Errorf("better(%q) = %d, want %d", metric, got, want)
		}
	}
}

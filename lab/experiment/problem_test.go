package experiment

import "testing"

func TestSuggest(t *testing.T) {
	known := []string{"delay_ms", "rate_mbps", "tcp", "mptcp", "a"}
	for name, want := range map[string]string{
		"delay_mss": "delay_ms", "rate_mpbs": "rate_mbps", "rat_mbps": "rate_mbps", "tpc": "tcp", "mtcp": "mptcp",
		"aa": "a", "b": "", "queue": "", "": "",
	} {
		if want != "" {
			want = "; did you mean " + want + "?"
		}
		if got := suggest(name, known); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

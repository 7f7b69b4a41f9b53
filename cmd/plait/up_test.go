package main

import (
	"strings"
	"testing"

	"plait.dev/plait/daemon"
)

// What is off is the lever congestion: the exits beside it may be on.
func TestPrintUpOff(t *testing.T) {
	for rules, want := range []string{"congestion off: no congestion control is chosen\n", "congestion off: no congestion control is chosen but by rules\n"} {
		var out strings.Builder
		printUp(&out, daemon.Status{Mode: daemon.Off, Rules: rules, Egress: &daemon.EgressSummary{Mode: daemon.On}}, "", "log")
		if !strings.Contains(out.String(), want) {
			t.Errorf("%d rules: got\n%s", rules, out.String())
		}
	}
}

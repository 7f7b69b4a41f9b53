package main

import (
	"strings"
	"testing"

	"plait.dev/plait/daemon"
)

// What failed is followed by what to do, in the columns of the others.
func TestPrintResults(t *testing.T) {
	var out strings.Builder
	printResults(&out, []daemon.CheckResult{{Outcome: "ok", Check: "session", Found: "reflector 2001:db8::2: established"},
		{Outcome: "failed", Exit: "a", Check: "answer", Found: "nothing answers", Do: "look"}})
	want := "ok      -  session  reflector 2001:db8::2: established\nfailed  a  answer   nothing answers\n                    to do: look\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

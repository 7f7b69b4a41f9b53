package traffic

import (
	"bytes"
	"strings"
	"testing"

	"plait.dev/plait/internal/rung"
)

// TestLeftInTheBackground: a command whose shell has ended while another process holds its output is told by its cause.
func TestLeftInTheBackground(t *testing.T) {
	rung.Long(t)
	for _, command := range []string{"sleep 60 & echo 5", "sleep 60 >/dev/null & echo 5"} {
		p := program(t.Context(), "here", "sh", "-c", command)
		p.Stdout = &bytes.Buffer{}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		want := "run sh in here: it left a process in the background that holds its standard output or error; send both elsewhere, or let it wait for that process"
		if err := p.finish(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", command, err, want)
		}
	}
}

// A program that fails is told with what it said: on standard error, or on standard output alone.
func TestProgramFails(t *testing.T) {
	for command, want := range map[string]string{
		"echo output; echo why >&2; exit 3": "run sh in here: exit status 3: why",
		"echo begin; echo why; exit 3":      "run sh in here: exit status 3: begin\nwhy",
		"echo why; echo >&2; exit 3":        "run sh in here: exit status 3: why",
		"exit 3":                            "run sh in here: exit status 3",
	} {
		p := program(t.Context(), "here", "sh", "-c", command)
		p.Stdout = &limited{}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := p.finish(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", command, err, want)
		}
	}
}

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

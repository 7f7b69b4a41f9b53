package traffic

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
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

// A server that takes connections and answers none is waited for no longer than the application may take.
func TestServerNeverAnswers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "ready")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if _, err := l.Accept(); err == nil {
			cancel()
		}
	}()
	s := &server{process: program(ctx, "here", "nginx"), ended: make(chan struct{})}
	if err := s.answers(ctx, socket); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the application has ended", err)
	}
}

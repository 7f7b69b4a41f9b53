package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"plait.dev/plait/daemon"
)

// topEvery is how often the view is drawn.
const topEvery = time.Second

// What a terminal is told: another screen without cursor, and back; the upper left corner; forget the rest of line and screen.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

func newTop() *cobra.Command {
	var f controlFlags
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch plait status, once a second; q ends it",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client := f.client()
			if _, err := client.Status(); err != nil {
				return unanswered(err)
			}
			if !term.IsTerminal(int(os.Stdout.Fd())) || !term.IsTerminal(int(os.Stdin.Fd())) {
				return errors.New("top: standard input and output are not a terminal; use plait status, or plait status --json for programs")
			}
			return top(c.Context(), client)
		},
	}
	f.add(c)
	return c
}

// top draws until q is typed, ctx ends or the daemon does.
func top(ctx context.Context, client *daemon.ControlClient) error {
	stdin := int(os.Stdin.Fd())
	before, err := term.MakeRaw(stdin)
	if err != nil {
		return fmt.Errorf("top: read single keys: %w", err)
	}
	defer func() {
		fmt.Print(leaveScreen)
		_ = term.Restore(stdin, before)
	}()
	fmt.Print(enterScreen)
	quit := make(chan struct{})
	go readQuit(os.Stdin, quit)
	answers, failed := make(chan daemon.Status), make(chan error, 1)
	go func() { // apart from the keys: a daemon that hangs must not keep q waiting
		for {
			s, err := client.Status()
			if err != nil {
				failed <- err
				return
			}
			answers <- s
			time.Sleep(topEvery)
		}
	}()
	for {
		select {
		case s := <-answers:
			fmt.Print(frame(s, time.Now()))
		case err := <-failed:
			return unanswered(err)
		case <-quit:
			return nil
		case <-ctx.Done():
			return &exit{status: 130}
		}
	}
}

// readQuit waits for q, or Ctrl-C, which is a key like others in raw mode.
func readQuit(in io.Reader, quit chan<- struct{}) {
	key := make([]byte, 1)
	for {
		if _, err := in.Read(key); err != nil || key[0] == 'q' || key[0] == 'Q' || key[0] == 3 {
			close(quit)
			return
		}
	}
}

// frame is one picture, cut to the terminal so that it does not scroll.
func frame(s daemon.Status, now time.Time) string {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	return draw(s, now, width, height)
}

func draw(s daemon.Status, now time.Time, width, height int) string {
	var text bytes.Buffer
	prefixes, sockets := rows(s, height)
	printStatus(&text, s, now, prefixes, sockets)
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	lines = lines[:min(len(lines), height-1)]
	for i, l := range lines {
		if r := []rune(l); len(r) > width {
			lines[i] = string(r[:width])
		}
	}
	return home + strings.Join(append(lines, "q: quit"), clearLine+"\r\n") + clearLine + clearBelow
}

// rows shares a screen between the two tables: half for each, or what the other one leaves.
func rows(s daemon.Status, height int) (prefixes, sockets int) {
	const around = 2 + 2*4 + 1 // head, blank line, title, columns and "and more" of both tables, key
	free := max(0, height-around-len(s.Warnings))
	prefixes = min(len(s.Prefixes), max(free/2, free-len(s.Sockets)))
	return prefixes, free - prefixes
}

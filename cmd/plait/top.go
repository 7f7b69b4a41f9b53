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
		Short: "Watch plait status, once a second; e shows the BGP exits, q ends it",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client := f.client()
			if _, err := client.Status(); err != nil {
				return f.unanswered(err)
			}
			if !term.IsTerminal(int(os.Stdout.Fd())) || !term.IsTerminal(int(os.Stdin.Fd())) {
				return errors.New("top: standard input and output are not a terminal; use plait status, or plait status --json for programs")
			}
			if os.Getenv("TERM") == "dumb" {
				return errors.New("top: the terminal cannot move its cursor (TERM=dumb); use plait status")
			}
			return top(heed(c.Context()), client)
		},
	}
	f.add(c)
	return c
}

// view is what plait top draws.
type view struct {
	daemon.Status
	traffic daemon.EgressTraffic // with the lever egress
	unseen  error                // why there is no traffic
}

func look(client *daemon.ControlClient) (v view, err error) {
	if v.Status, err = client.Status(); err == nil && v.Egress != nil {
		v.traffic, v.unseen = client.EgressTraffic()
	}
	return v, err
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
	keys := make(chan byte)
	go readKeys(os.Stdin, keys)
	answers, failed := make(chan view), make(chan error, 1)
	go func() { // apart from the keys: a daemon that hangs must not keep q waiting
		for {
			v, err := look(client)
			if err != nil {
				failed <- err
				return
			}
			answers <- v
			time.Sleep(topEvery)
		}
	}()
	var last *view
	ofExits := false
	for {
		select {
		case v := <-answers:
			if last == nil {
				ofExits = v.Mode == daemon.Off && v.Egress != nil
			}
			last = &v
		case err := <-failed:
			return unanswered(err)
		case key, open := <-keys:
			switch {
			case !open, key == 'q', key == 'Q', key == 3: // Ctrl-C, a key like others in raw mode
				return nil
			case key == 'e':
				ofExits = !ofExits
			}
		case <-ctx.Done():
			return &exit{status: 130}
		}
		if last != nil {
			fmt.Print(frame(*last, ofExits, time.Now()))
		}
	}
}

// readKeys reads until the end of the input.
func readKeys(in io.Reader, keys chan<- byte) {
	defer close(keys)
	key := make([]byte, 1)
	for {
		if _, err := in.Read(key); err != nil {
			return
		}
		keys <- key[0]
	}
}

// frame is one picture, cut to the terminal so that it does not scroll.
func frame(v view, ofExits bool, now time.Time) string {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	return draw(v, ofExits, now, width, height)
}

func draw(v view, ofExits bool, now time.Time, width, height int) string {
	var text bytes.Buffer
	keys := "q: quit"
	switch {
	case v.Egress != nil && ofExits:
		printExitsView(&text, v, now, height)
		keys += "  e: connections"
	case v.Egress != nil:
		keys += "  e: BGP exits"
		fallthrough
	default:
		prefixes, sockets := rows(v.Status, height)
		printStatus(&text, v.Status, now, prefixes, sockets)
	}
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	lines = append(lines[:min(len(lines), height-1)], keys)
	for i, l := range lines {
		if r := []rune(l); len(r) > width {
			lines[i] = string(r[:width])
		}
	}
	return home + strings.Join(lines, clearLine+"\r\n") + clearLine + clearBelow
}

// rows shares a screen between the two tables of the first view.
func rows(s daemon.Status, height int) (prefixes, sockets int) {
	const around = 2 + 2*4 + 1 // head, blank line, title, columns and "and more" of both tables, key
	free := height - around - len(s.Warnings)
	for _, said := range []bool{s.Egress != nil, s.Ackpath != nil} {
		if said {
			free--
		}
	}
	free = max(0, free)
	prefixes, _ = share(free, len(s.Prefixes), len(s.Sockets))
	return prefixes, free - prefixes
}

// share divides lines between two tables: half for each, or what the other one leaves.
func share(lines, first, second int) (int, int) {
	first = min(first, max(lines/2, lines-second))
	return first, min(second, lines-first)
}

package lab

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"plait.dev/plait/lab/result"
)

// quiet is how long nothing is shown: short work needs no progress.
const quiet = 2 * time.Second

// progress shows how far an experiment is: on a terminal one line that is written over, otherwise a line per finished cell.
type progress struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	width    int
	name     string
	stage    string // what is done before the cells begin
	cells    int
	done     int
	skipped  int // of those done: they took no time
	running  map[int]string
	started  time.Time
	first    time.Time // when the cells began
	end      chan struct{}
}

// newProgress shows how far that many cells are; with none, what is done instead of them.
func newProgress(out *os.File, name string, cells int) *progress {
	p := &progress{out: out, name: name, cells: cells, running: map[int]string{}, started: time.Now(), end: make(chan struct{})}
	if out == nil {
		p.out = io.Discard
		return p
	}
	if p.terminal = term.IsTerminal(int(out.Fd())); p.terminal {
		p.width, _, _ = term.GetSize(int(out.Fd()))
		go p.runDisplay()
	}
	return p
}

// runDisplay redraws the line until the experiment ends.
func (p *progress) runDisplay() {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.mu.Lock()
			if time.Since(p.started) > quiet {
				fmt.Fprintf(p.out, "\r\x1b[K%s", clip(p.line(), p.width-1))
			}
			p.mu.Unlock()
		case <-p.end:
			return
		}
	}
}

// line is what the terminal shows.
func (p *progress) line() string {
	if p.stage != "" {
		return fmt.Sprintf("%s: %s; %v so far", p.name, p.stage, time.Since(p.started).Round(time.Second))
	}
	text := fmt.Sprintf("%s: cell %d of %d", p.name, min(p.done+1, p.cells), p.cells)
	if left := p.left(); left > 0 {
		text += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	var cells []string
	for i := range p.cells {
		if s := p.running[i]; s != "" {
			cells = append(cells, fmt.Sprintf("[%d] %s", i+1, s))
		}
	}
	return text + "  " + strings.Join(cells, "  ")
}

// left is the wall time that remains if the cells to come take as long as those done.
func (p *progress) left() time.Duration {
	if p.done == p.skipped {
		return 0
	}
	return time.Since(p.first) / time.Duration(p.done-p.skipped) * time.Duration(p.cells-p.done)
}

func clip(s string, width int) string {
	if r := []rune(s); width > 0 && len(r) > width {
		return string(r[:width])
	}
	return s
}

// begin says that the cells run from now on.
func (p *progress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.first = "", time.Now()
}

// doing says what is done before the first cell.
func (p *progress) doing(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage = what
	if !p.terminal {
		p.print(what)
	}
}

func (p *progress) cellDoing(i int, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[i] = what
}

func (p *progress) cellAt(i int, atS float64) { p.cellDoing(i, fmt.Sprintf("%.0f s virtual", atS)) }

// skip counts a cell that had been run before.
func (p *progress) skip() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.skipped++
}

// finished counts a cell and says so where there is no terminal to draw on.
func (p *progress) finished(i int, c *result.Cell) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	delete(p.running, i)
	switch {
	case c.Invalid != "":
		p.print(fmt.Sprintf("cell %d of %d: %s, seed %d: invalid: %s", p.done, p.cells, c.Variant, c.Seed, c.Invalid))
	case !p.terminal && time.Since(p.started) > quiet:
		text := fmt.Sprintf("cell %d of %d: %s, seed %d: %.1f s virtual", p.done, p.cells, c.Variant, c.Seed, c.VirtualS)
		if left := p.left(); left > 0 {
			text += fmt.Sprintf("; about %v left", left.Round(time.Second))
		}
		p.print(text)
	}
}

// print writes a line that stays.
func (p *progress) print(s string) {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintf(p.out, "%s: %s\n", p.name, s)
}

// close ends the display.
func (p *progress) close() {
	close(p.end)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

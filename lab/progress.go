package lab

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"plait.dev/plait/lab/experiment"
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
	stage    string    // what is done before the cells begin
	lengths  []float64 // virtual seconds that each cell takes; 0 where nobody knows
	cells    int
	done     int
	skipped  int // of those done: they took no time
	running  map[int]string
	said     map[int]int     // how often each said what it does
	at       map[int]float64 // virtual time of those that run
	started  time.Time
	first    time.Time // since when the cells are timed
	before   float64   // how many had run then
	last     time.Time // when a cell was last heard of
	closed   bool
	end      chan struct{} // closed with it
}

// newProgress shows how far cells of these lengths are; without any, what is done instead of them.
func newProgress(out *os.File, name string, lengths []float64) *progress {
	p := &progress{out: out, name: name, lengths: lengths, cells: len(lengths), running: map[int]string{}, said: map[int]int{}, at: map[int]float64{},
		started: time.Now(), end: make(chan struct{})}
	if out == nil {
		p.out = io.Discard
		return p
	}
	if p.terminal = obeys(out); p.terminal {
		p.width, _, _ = term.GetSize(int(out.Fd()))
		go p.runDisplay()
	}
	return p
}

// obeys says that a file is a terminal on which a line can be written over.
func obeys(out *os.File) bool { return term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb" }

// Busy shows on a terminal what else takes long, which doing tells, until end is called. On anything else it shows nothing.
func Busy(name string) (doing func(string), end func()) {
	if !obeys(os.Stderr) {
		return func(string) {}, func() {}
	}
	p := newProgress(os.Stderr, name, nil)
	return p.doing, p.close
}

// runDisplay redraws the line until the experiment ends.
func (p *progress) runDisplay() {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.mu.Lock()
			if !p.closed && time.Since(p.started) > quiet {
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
	text := fmt.Sprintf("%s: cell %d of %d, %v so far", p.name, min(p.done+1, p.cells), p.cells, time.Since(p.started).Round(time.Second))
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

// ran is how many cells have run, with the share of those that run now.
func (p *progress) ran() float64 {
	ran := float64(p.done - p.skipped)
	for i, at := range p.at {
		if p.lengths[i] > 0 {
			ran += min(at/p.lengths[i], 1)
		}
	}
	return ran
}

// left is the wall time that remains if what is to come goes on as what was done, 0 if nobody knows.
func (p *progress) left() time.Duration {
	ran := p.ran()
	if ran <= p.before {
		return 0
	}
	left := float64(p.last.Sub(p.first)) / (ran - p.before) * (float64(p.cells-p.skipped) - ran)
	return max(time.Duration(left)-time.Since(p.last), 0)
}

// length is how many virtual seconds a cell takes at the most, 0 if its file does not say: a download of so many bytes takes as long as
// the network makes it.
func length(s *experiment.Spec) float64 {
	last := 0.0
	for _, a := range s.Apps {
		end := a.StopS
		if end == 0 && a.Count > 0 { // bursts or pings
			end = a.StartS + float64(a.Count)*a.GapMs/1000
		}
		if end == 0 {
			return s.DurationS
		}
		last = max(last, end)
	}
	for _, e := range s.Timeline {
		last = max(last, e.AtS)
	}
	if s.DurationS > 0 && (last == 0 || s.DurationS < last) {
		return s.DurationS
	}
	return last
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

// cellDoing says what takes time before a cell's own begins. Where there is no terminal, it is a line if it is not over soon.
func (p *progress) cellDoing(i int, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[i] = what
	if p.terminal {
		return
	}
	p.said[i]++
	said := p.said[i]
	time.AfterFunc(quiet, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.closed && p.said[i] == said && p.running[i] == what {
			p.print(fmt.Sprintf("[%d] %s", i+1, what))
		}
	})
}

// cellAt says how far a cell is. The first time that any does, the cells are timed anew: what came before, to build the first topology, is not
// done again.
func (p *progress) cellAt(i int, atS float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.done == p.skipped && len(p.at) == 0
	p.running[i], p.at[i], p.last = fmt.Sprintf("%.0f s virtual", atS), atS, time.Now()
	if first {
		p.first, p.before = p.last, p.ran()
	}
}

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
	p.last = time.Now()
	delete(p.running, i)
	delete(p.at, i)
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

// close ends the display, at the first call.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	close(p.end)
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

package lab

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// Without cells the line says what is done, and since when.
func TestStage(t *testing.T) {
	p := newProgress(nil, "image", nil)
	p.doing("packing, step 2 of 2")
	p.started = time.Now().Add(-12 * time.Second)
	if got, want := p.line(), "image: packing, step 2 of 2; 12s so far"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A terminal that obeys no codes gets none, as an editor's shell does not: it gets the lines of a file.
func TestDumbTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	for name, want := range map[string]bool{"xterm": true, "dumb": false} {
		t.Setenv("TERM", name)
		p := newProgress(terminal, "x", nil)
		p.close()
		if p.terminal != want {
			t.Errorf("%s: %v", name, p.terminal)
		}
	}
}

// A terminal shows nothing of what is short, then a line, and nothing of it is left at the end.
func TestDisplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen strings.Builder
		p := newProgress(nil, "experiment 2 of 5, x", nil)
		p.out, p.terminal = &screen, true
		p.doing("booting")
		go p.runDisplay()
		time.Sleep(quiet)
		p.mu.Lock()
		if screen.Len() > 0 {
			t.Errorf("shown at once: %q", screen.String())
		}
		p.mu.Unlock()
		time.Sleep(time.Second)
		p.close()
		p.close()
		synctest.Wait()
		time.Sleep(time.Second)
		if got := screen.String(); !strings.Contains(got, "\r\x1b[Kexperiment 2 of 5, x: booting; 3s so far") || !strings.HasSuffix(got, "so far\r\x1b[K") {
			t.Errorf("%q", got)
		}
	})
}

// Without a terminal, what a cell waits for is a line if it takes long.
func TestLineForWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(nil, "x", make([]float64, 2))
		p.out = &out
		p.cellDoing(1, "preparing")
		time.Sleep(quiet / 2)
		p.cellDoing(1, "waiting")
		time.Sleep(quiet / 2)
		p.cellDoing(1, "waiting") // for something else
		time.Sleep(2 * quiet)
		p.cellDoing(1, "starting")
		p.close()
		time.Sleep(2 * quiet)
		if got, want := out.String(), "x: [2] waiting\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// The time that is left is known without a message from a cell: the shortest send none.
func TestLeftOfShortCells(t *testing.T) {
	p := newProgress(nil, "x", make([]float64, 2))
	p.begin()
	p.finished(0, &result.Cell{})
	if left := p.left(); left < 0 || left > time.Hour {
		t.Errorf("%v left", left)
	}
}

// The time that is left of a single cell follows from the virtual time it has come to.
func TestLeftOfLongCell(t *testing.T) {
	p := newProgress(nil, "x", []float64{30})
	p.begin()
	if left := p.left(); left != 0 {
		t.Errorf("%v left before anything is known", left)
	}
	p.cellAt(0, 1)
	p.first = time.Now().Add(-9 * time.Second)
	p.cellAt(0, 10)
	if left := p.left().Round(time.Second); left != 20*time.Second {
		t.Errorf("%v left of 20 virtual seconds, with 9 done in 9 s", left)
	}
	if line := p.line(); !strings.Contains(line, "so far, about 20s left  [1] 10 s virtual") {
		t.Error(line)
	}
}

func TestLength(t *testing.T) {
	stream, file := &experiment.App{StopS: 7}, &experiment.App{Bytes: 1e6}
	bursts := &experiment.App{StartS: 2, Count: 10, GapMs: 500}
	for name, test := range map[string]struct {
		spec experiment.Spec
		want float64
	}{
		"stop_s":               {experiment.Spec{Apps: map[string]*experiment.App{"a": stream}}, 7},
		"count and gap_ms":     {experiment.Spec{Apps: map[string]*experiment.App{"a": bursts}}, 7},
		"duration_s":           {experiment.Spec{Apps: map[string]*experiment.App{"a": stream}, DurationS: 5}, 5},
		"only duration_s":      {experiment.Spec{DurationS: 5}, 5},
		"a later event":        {experiment.Spec{Apps: map[string]*experiment.App{"a": stream}, Timeline: []experiment.Event{{AtS: 9}}}, 9},
		"unknown":              {experiment.Spec{Apps: map[string]*experiment.App{"a": stream, "b": file}}, 0},
		"unknown, but limited": {experiment.Spec{Apps: map[string]*experiment.App{"b": file}, DurationS: 5}, 5},
	} {
		if got := length(&test.spec); got != test.want {
			t.Errorf("%s: %g s, want %g", name, got, test.want)
		}
	}
}

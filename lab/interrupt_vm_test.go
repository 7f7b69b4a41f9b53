package lab

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// listener calls heard whenever something is written to it after these words.
type listener struct {
	text  []byte
	words string
	heard func()
}

func (l *listener) Write(p []byte) (int, error) {
	l.text = append(l.text, p...)
	if bytes.Contains(l.text, []byte(l.words)) {
		l.heard()
	}
	return len(p), nil
}

// On Ctrl-C the cells that have finished are in the result file, and nothing else is left.
func TestInterrupt(t *testing.T) {
	rung.VM(t)
	runFile(t, 1, "testdata/interrupt.yaml", experiment.Options{Seeds: 1}) // so that the machine has booted
	file, temp := filepath.Join(t.TempDir(), "result.json"), t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Getenv("PLAIT_AGENT"), "lab", "run", "testdata/interrupt.yaml", "--jobs", "2", "--json", file)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	toGroup := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) } // as a terminal does
	said := &listener{words: "interrupt: cell ", heard: sync.OnceFunc(toGroup)}
	cmd.Stderr = said
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("ended with %v, want exit status 130: %s", err, said.text)
	}
	f, err := result.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.Cells); n < 1 || n > 999 {
		t.Errorf("%d cells in the file, want some of 1000", n)
	}
	if len(f.Bounds) > 0 {
		t.Errorf("bounds were evaluated: %+v", f.Bounds)
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, c := range commands {
		if line, _ := os.ReadFile(c); bytes.Contains(line, []byte(temp)) {
			t.Errorf("still running: %q", line)
		}
	}
}

// What has finished is in the result file, too, if who reads the output has gone at Ctrl-C, as tee does, or before.
func TestReaderGone(t *testing.T) {
	rung.VM(t)
	runFile(t, 1, "testdata/interrupt.yaml", experiment.Options{Seeds: 1}) // so that the machine has booted
	for _, test := range []struct {
		seeds       string
		interrupted bool
		status      int
	}{{"1000", true, 130}, {"2", false, 1}} {
		file := filepath.Join(t.TempDir(), "result.json")
		cmd := exec.CommandContext(t.Context(), os.Getenv("PLAIT_AGENT"), "lab", "run", "testdata/interrupt.yaml", "--seeds", test.seeds, "--jobs", "1", "--json", file)
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = write, write
		if err := errors.Join(cmd.Start(), write.Close()); err != nil {
			t.Fatal(err)
		}
		var text []byte
		for buf := make([]byte, 1000); test.interrupted && err == nil && !bytes.Contains(text, []byte("interrupt: cell ")); {
			n := 0
			n, err = read.Read(buf)
			text = append(text, buf[:n]...)
		}
		err = errors.Join(err, read.Close())
		if test.interrupted {
			err = errors.Join(err, cmd.Process.Signal(syscall.SIGINT))
		}
		if err != nil {
			t.Errorf("%v: %s", err, text)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != test.status {
			t.Errorf("ended with %v, want exit status %d: %s", err, test.status, text)
		}
		if f, err := result.Read(file); err != nil || len(f.Cells) < 1 || (f.Incomplete != "") != test.interrupted {
			t.Errorf("interrupted %v: %v, %+v", test.interrupted, err, f)
		}
	}
}

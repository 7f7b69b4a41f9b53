package daemon

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A log that takes nothing keeps nobody waiting; what it took in has its place when it goes on.
func TestSpool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := newSpool(w)
		var want bytes.Buffer
		const lost = 7
		for i := range 1 + logLines + lost { // one of them is being written
			line := fmt.Sprintln("line", i)
			fmt.Fprint(s, line)
			if i == 0 {
				synctest.Wait()
			}
			if i <= logLines {
				want.WriteString(line)
			}
		}
		begin := time.Now()
		_ = s.Close()
		if took := time.Since(begin); took != lastLines {
			t.Errorf("its end takes %v, want %v", took, lastLines)
		}
		read := make(chan string)
		go func() { text, _ := io.ReadAll(r); read <- string(text) }()
		synctest.Wait()
		fmt.Fprintln(s, "the next")
		_ = s.Close()
		w.Close()
		fmt.Fprintf(&want, "%d entries of the log were left out here: it took none\nthe next\n", lost)
		if got := <-read; got != want.String() {
			t.Errorf("got\n%s\nwant the first %d lines and the next, between them how many are left out", got[max(0, len(got)-200):], 1+logLines)
		}
	})
}

// Who reads the log of a daemon in the foreground may stop: it comes up, does what it is asked for, and goes down all the same.
func TestNobodyReadsLog(t *testing.T) {
	h := newHost(t)
	r, w, err := os.Pipe()
	h.must(err)
	defer r.Close()
	defer w.Close()
	size, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096)
	h.must(err)
	_, err = w.WriteString(strings.Repeat("x", size))
	h.must(err)
	p := h.prepare(filepath.Join(h.dir, "control"), takeAll)
	p.cmd.Stderr = w
	stuck := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer stuck.Stop()
	if !h.ready(p) {
		t.Fatal("it does not come up")
	}
	h.must(p.Reload())
	h.uses("new", h.connect(0, ""), "plait", "plait")
	h.must(p.cmd.Process.Signal(unix.SIGTERM))
	h.must(p.cmd.Wait())
	h.clean("after the end")
}

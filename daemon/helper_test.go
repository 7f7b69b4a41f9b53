package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/bpf"
)

// children of a process.
func (h *host) children(pid int) (pids []int) {
	h.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	h.must(err)
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for _, child := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(child)
			h.must(err)
			pids = append(pids, n)
		}
	}
	return pids
}

// Without its helper the daemon would leave packets to exits when it is killed: it ends in good order, and says why.
func TestHelperKilled(t *testing.T) {
	s := newContentServer(t)
	before := s.everything()
	p := s.tells(On)
	helper, err := os.FindProcess(s.children(p.cmd.Process.Pid)[0])
	s.must(err)
	s.must(helper.Kill())
	if err := p.cmd.Wait(); err == nil || !strings.Contains(p.said.String(), errHelperGone.Error()) {
		t.Errorf("the daemon ended with %v, and said: %s", err, p.said.String())
	}
	s.same("after the helper's death", before)
}

// The end of plait misses the helper again, to release connections, and does not say so a second time.
func TestHelperKilledSaidOnce(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	h.must(syscall.Kill(h.children(p.cmd.Process.Pid)[0], syscall.SIGKILL))
	err := p.cmd.Wait()
	if n := strings.Count(p.said.String(), errHelperGone.Error()); err == nil || n != 1 {
		t.Errorf("the daemon ended with %v, and said %d times that the helper is gone: %s", err, n, p.said.String())
	}
	h.clean("after the end")
}

// A helper that hangs keeps neither the heartbeat nor a reload waiting, and plait ends to get another.
func TestHelperHangs(t *testing.T) {
	h := newHost(t)
	d := h.inside(takeAll, new(bytes.Buffer))
	helper, err := startHelper(nil, d.kernel.Programs[passProgram], false)
	h.must(err)
	d.kernel.helper, helper.patience = helper, 6*time.Second
	h.must(d.Reload())
	h.must(helper.cmd.Process.Signal(syscall.SIGSTOP))
	reloaded := make(chan error, 1)
	go func() { reloaded <- d.Reload() }()
	time.Sleep(helper.patience - beatEvery/2)
	var c bpf.Control
	h.must(d.kernel.Variables["plait_daemon"].Get(&c))
	if silent := time.Duration(monotonicNs() - c.HeartbeatNs); silent > 4*time.Second { // each second, on a machine that is not busy
		t.Errorf("no heartbeat for %v", silent)
	}
	select {
	case err := <-reloaded:
		if err == nil || !strings.Contains(err.Error(), "has said nothing for 6s, and was killed; plait ends") {
			t.Errorf("reload: %v, want that the helper hangs", err)
		}
	case <-time.After(2 * helper.patience):
		h.must(helper.cmd.Process.Signal(syscall.SIGCONT))
		t.Fatal("the reload waits for the helper")
	}
	if err := helper.watch(t.Context()); !errors.Is(err, errHelperGone) {
		t.Errorf("got %v, want that plait ends", err)
	}
	d.kernel.helper = nil
}

// plait down right after a kill finds the helper alive, which has the locks.
func TestDownAfterKill(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	idle := h.connect(0, "")
	helper := h.children(p.cmd.Process.Pid)[0]
	h.must(syscall.Kill(helper, syscall.SIGSTOP))
	h.must(p.cmd.Process.Kill()) // and not waited for: the helper has its standard error
	goes := time.AfterFunc(orphanPatience/5, func() { _ = syscall.Kill(helper, syscall.SIGCONT) })
	defer func() { // before p is waited for
		if goes.Stop() {
			_ = syscall.Kill(helper, syscall.SIGCONT)
		}
	}()
	if left := h.cleanup(p); left.Connections != 2 {
		t.Errorf("%d connections returned, want both ends of one", left.Connections)
	}
	h.uses("after down", idle, systemDefault, systemDefault)
}

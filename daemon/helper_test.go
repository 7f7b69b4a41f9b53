package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
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
	if err := p.cmd.Wait(); err == nil || !strings.Contains(p.said.String(), helperGone) {
		t.Errorf("the daemon ended with %v, and said: %s", err, p.said.String())
	}
	s.same("after the helper's death", before)
}

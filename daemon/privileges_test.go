package daemon

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// rights are what the kernel says of a thread: its capability sets, by name, and whether it can gain any.
func (h *host) rights(thread string) map[string]string {
	h.Helper()
	text, err := os.ReadFile(filepath.Join(thread, "status"))
	h.must(err)
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.HasPrefix(key, "Cap") || key == "NoNewPrivs" {
			out[key] = strings.TrimSpace(value)
		}
	}
	return out
}

// mask of capabilities, as /proc shows it.
func mask(of []cap.Value) string {
	var set uint64
	for _, v := range of {
		set |= 1 << v
	}
	return fmt.Sprintf("%016x", set)
}

// holds checks that every thread of a process has exactly some capabilities, and will never have others.
func (h *host) holds(what string, pid int, some []cap.Value) {
	h.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		h.Fatalf("%s: no threads of process %d: %v", what, pid, err)
	}
	for _, thread := range threads {
		for key, want := range map[string]string{"CapPrm": mask(some), "CapEff": mask(some), "CapBnd": mask(some), "CapInh": mask(nil), "CapAmb": mask(nil), "NoNewPrivs": "1"} {
			if got := h.rights(thread)[key]; got != want {
				h.Errorf("%s: thread %s has %s %s, want %s", what, thread, key, got, want)
			}
		}
	}
}

// The daemon has the capability it needs and none more, in all its threads, and its helper two more. With that it does all that this package's tests ask of
// it, and here at least a reload and an orderly end with exits.
func TestPrivileges(t *testing.T) {
	s := newContentServer(t)
	before := s.everything()
	p := s.tells(On)
	s.holds("daemon", p.cmd.Process.Pid, []cap.Value{cap.NET_ADMIN})
	helpers := s.children(p.cmd.Process.Pid)
	if len(helpers) != 1 {
		t.Fatalf("the daemon has the processes %v beside it, want its helper alone", helpers)
	}
	s.eventually(10*time.Second, "the helper has begun", func() bool {
		return s.rights(fmt.Sprintf("/proc/%d", helpers[0]))["CapEff"] == mask(helperKeeps)
	})
	s.holds("helper", helpers[0], []cap.Value{cap.NET_ADMIN, cap.SYS_ADMIN, cap.SYS_PTRACE})
	s.must(p.Reload())
	s.installed()
	_, err := p.Stop(t.Context())
	s.must(err)
	s.must(p.cmd.Wait())
	s.same("after down", before)
	if !gone(helpers[0]) {
		t.Error("the helper is still there")
	}
}

// The daemon hears from the reflectors it connects to, and from nobody else: it listens on no port.
func TestAcceptsNobody(t *testing.T) {
	s := newContentServer(t)
	before := s.show("ss -Hltn")
	p := s.tells(On)
	if after := s.show("ss -Hltn"); !slices.Equal(before, after) {
		t.Errorf("sockets that listen: %q, before plait %q", after, before)
	}
	s.in(func() error {
		c, err := net.DialTimeout("tcp", "["+serverAddress+"]:179", 5*time.Second)
		if err == nil {
			c.Close()
			t.Error("somebody accepts a BGP session")
		}
		return nil
	})
	_, err := p.Stop(t.Context())
	s.must(err)
}

// What the unit lets the daemon have is enough to come up with exits, to reload and to go down.
func TestUnitRights(t *testing.T) {
	s := newContentServer(t)
	unit, err := os.ReadFile("../packaging/plait.service")
	s.must(err)
	_, names, found := strings.Cut(string(unit), "CapabilityBoundingSet=")
	if !found {
		t.Fatal("the unit bounds no capabilities")
	}
	names, _, _ = strings.Cut(names, "\n")
	bound := "--bounding-set=-all"
	for _, name := range strings.Fields(names) {
		bound += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	before := s.everything()
	p := s.begun(On, "setpriv", bound, "--no-new-privs")
	s.greet()
	s.say(s.announce(1, "2001:db8:c::/48"), s.announce(0, "2001:db8:c::/48"))
	for _, f := range reflectorFamilies {
		s.say(wire.NewEndOfRib(f))
	}
	s.has(true, "ip -6 rule", "500: from "+exitAddress+" lookup 11200")
	s.has(true, pathManager, ".*/(pm_type:1|path_manager:userspace)$")
	s.holds("daemon", p.cmd.Process.Pid, daemonKeeps)
	s.holds("helper", s.children(p.cmd.Process.Pid)[0], helperKeeps)
	s.must(p.Reload())
	_, err = p.Stop(t.Context())
	s.must(err)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, p.said.String())
	}
	s.same("after down", before)
	if e := p.said.String(); strings.Contains(e, "not permitted") || strings.Contains(e, "denied") {
		t.Errorf("it said: %s", e)
	}
}

package daemon

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"plait.dev/plait/egress"
	"plait.dev/plait/internal/rung"
)

// In a user namespace, as of a container without root's rights on the host, a process has all capabilities and may load no program: plait does not come up there.
func TestDoctorInUserNamespace(t *testing.T) {
	rung.Netns(t)
	const inside = "PLAIT_TEST_USER_NAMESPACE"
	if os.Getenv(inside) == "" {
		c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		c.Env = append(os.Environ(), inside+"=1")
		root := []syscall.SysProcIDMap{{Size: 1}}
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: root, GidMappings: root}
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	c := DefaultConfig()
	c.Control = t.TempDir() + "/control"
	c.Egress = Egress{Mode: Observe, Exits: []egress.Exit{{}}, Reflectors: []Reflector{{PasswordFile: c.Control + "-missing"}}}
	checks := Doctor(c)
	if Usable(checks) {
		t.Error("plait is told to be usable")
	}
	for _, c := range checks {
		switch {
		case c.Name == "privilege" && (c.Health != Fail || !strings.Contains(c.Do, "user namespace")):
			t.Errorf("%+v: want that a user namespace may be why it fails", c)
		case c.Name != "privilege" && strings.Contains(c.Do, "plait works"), strings.Contains(c.Do, "newer"):
			t.Errorf("%+v: want nothing that is another reason", c)
		}
	}
	if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == "reflectors' secrets" && c.Health == Fail }) {
		t.Errorf("%+v: want that a password is missing", checks)
	}
}

// What the configuration asks for, and this host lacks, is a warning.
func TestDoctorWarnsOfAckpath(t *testing.T) {
	h := newHost(t)
	h.in(func() error {
		h.must(os.WriteFile("/proc/sys/net/mptcp/enabled", []byte("0"), 0))
		for mode, want := range map[Mode]Health{Off: Info, Observe: Warn, On: Warn} {
			c := DefaultConfig()
			c.Control, c.Ackpath.Mode = h.dir+"/control", mode
			for _, check := range Doctor(c) {
				if check.Name == "copied ACKs" && (check.Health != want || check.Do == "") {
					t.Errorf("mode %s without MPTCP: %+v, want %s", mode, check, want)
				}
			}
		}
		return nil
	})
}

package daemon

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"plait.dev/plait/bpf"
)

// group makes a cgroup.
func (h *host) group(path string) string {
	h.Helper()
	h.must(os.Mkdir(path, 0o755))
	h.Cleanup(func() { _ = os.Remove(path) }) // it may have been removed
	return path
}

// connectFrom makes a connection by a process of a cgroup.
func (h *host) connectFrom(cgroup string, port int) pair {
	h.Helper()
	h.enter(cgroup)
	defer h.enter(h.cgroup)
	return h.connect(port, "")
}

// Rules by cgroup are for sockets of the cgroup and below; the nearest one counts, after ports and prefixes.
func TestCgroupRules(t *testing.T) {
	h := newHost(t)
	outer := h.group(filepath.Join(h.cgroup, "outer"))
	inner := h.group(filepath.Join(outer, "inner"))
	below := h.group(filepath.Join(inner, "below"))
	before := h.connectFrom(outer, 0)
	mount, err := findCgroup()
	h.must(err)
	relative, err := filepath.Rel(mount, inner)
	h.must(err)
	rules := fmt.Sprintf("\n  rules:\n    - {cgroup: %s, mode: off}\n    - {cgroups: [%s], mode: on}\n    - {port: %d, mode: on}", outer, relative, portNew)
	p := h.up(takeAll + rules)
	h.uses("of the outer one, before plait", before, systemDefault, systemDefault)
	h.uses("of no rule's", h.connect(0, ""), bpf.Name, bpf.Name)
	off := h.connectFrom(outer, 0)
	h.uses("of the outer one", off, systemDefault, systemDefault)
	on := h.connectFrom(inner, 0)
	h.uses("of the inner one", on, bpf.Name, bpf.Name)
	h.uses("below the inner one", h.connectFrom(below, 0), bpf.Name, bpf.Name)
	h.uses("to a port with a rule", h.connectFrom(outer, portNew), systemDefault, bpf.Name)
	h.enter(inner)
	h.uses("whose process has moved", off, systemDefault, systemDefault)
	h.enter(h.cgroup)

	// The other way round, for connections that exist and new ones; a prefix beats a cgroup.
	h.reload(p, takeAll+fmt.Sprintf("\n  rules:\n    - {cgroup: %s, mode: off}", inner))
	h.uses("of the outer one, after a reload", off, bpf.Name, bpf.Name)
	h.uses("of the inner one, after a reload", on, systemDefault, systemDefault)
	h.reload(p, takeAll+fmt.Sprintf("\n  rules:\n    - {cgroup: %s, mode: off}\n    - {prefix: 127.0.0.0/8, mode: on}", inner))
	h.uses("to a prefix with a rule", h.connectFrom(inner, 0), bpf.Name, bpf.Name)

	// A cgroup that is removed and made again is another one, until a reload.
	h.reload(p, takeAll+fmt.Sprintf("\n  rules:\n    - {cgroup: %s, mode: off}", below))
	h.uses("below", h.connectFrom(below, 0), systemDefault, systemDefault)
	h.must(os.Remove(below))
	want := fmt.Sprintf("%s:7:16: cgroup: %s: no such file or directory: expected a directory of cgroup v2", p.config, below)
	if err := p.Reload(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("without the cgroup: got %v, want %s", err, want)
	}
	h.must(os.Mkdir(below, 0o755))
	h.uses("below, made again", h.connectFrom(below, 0), bpf.Name, bpf.Name)
	h.must(p.Reload())
	h.uses("below, made again, after a reload", h.connectFrom(below, 0), systemDefault, systemDefault)
}

// The hook stays with the cgroup there was: of another one by its name no connection is taken, and plait says so.
func TestCgroupReplaced(t *testing.T) {
	h := newHost(t)
	whole := h.cgroup
	h.cgroup = h.group(filepath.Join(whole, "service"))
	p := h.up(takeAll)
	says := func(when, want string) {
		t.Helper()
		warnings := strings.Join(h.status(p).Warnings, "\n")
		if err := p.Reload(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: reload: %v, want %q", when, err, want)
		}
		if strings.Contains(warnings, "not taken") != (want != "") || !strings.Contains(warnings, want) {
			t.Errorf("%s: warnings %q, want %q", when, warnings, want)
		}
	}
	says("before", "")
	h.must(os.Remove(h.cgroup))
	says("removed", h.cgroup+": no such file or directory")
	h.must(os.Mkdir(h.cgroup, 0o755))
	h.uses("of the one made again", h.connectFrom(h.cgroup, 0), systemDefault, systemDefault)
	says("made again", h.cgroup+" was removed and made again")
	h.enter(whole)
	h.cgroup = whole
}

// ip netns exec hides the mount of cgroup v2 from the daemon.
func TestCgroupHidden(t *testing.T) {
	h := newHost(t)
	options := func() string {
		t.Helper()
		mounts, err := os.ReadFile("/proc/mounts")
		h.must(err)
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, " cgroup2 ") {
				return line
			}
		}
		return ""
	}
	before := options()
	self, err := os.Executable()
	h.must(err)
	config := filepath.Join(h.dir, "plait.yaml")
	h.must(os.WriteFile(config, fmt.Appendf(nil, "control: %s\nmetrics: off\ncongestion:\n  mode: off\n  rules:\n    - {cgroup: %s, mode: on, holdout_percent: 0}\n",
		filepath.Join(h.dir, "control"), filepath.Base(h.cgroup)), 0o600)) // other processes of this machine are left alone
	p := &process{cmd: exec.Command("ip", "netns", "exec", h.ns, self), ControlClient: Client(filepath.Join(h.dir, "control"))}
	p.cmd.Env = append(os.Environ(), daemonVariable+"="+config)
	p.cmd.Stderr = &p.said
	out, err := p.cmd.StdoutPipe()
	h.must(err)
	h.must(p.cmd.Start())
	t.Cleanup(p.kill)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		p.kill()
		t.Fatalf("the daemon does not come up: %s", &p.said)
	}
	h.uses("of the cgroup", h.connect(0, ""), bpf.Name, bpf.Name)
	if got, want := h.status(p).Cgroup, "the whole host"; got != want {
		t.Errorf("cgroup %s, want %s", got, want)
	}
	h.must(p.Reload())
	_, err = p.Stop(t.Context())
	h.must(err)
	if after := options(); after != before {
		t.Errorf("the mount was %q and is %q", before, after)
	}
}

// Without the lever congestion nothing needs a cgroup, which hosts with version 1 alone have none of.
func TestOffNeedsNoCgroup(t *testing.T) {
	h := newHost(t)
	path := h.dir + "/plait.yaml"
	h.write(path, h.dir+"/control", "  mode: off")
	c, err := ReadConfig(path)
	h.must(err)
	c.Cgroup = filepath.Join(h.cgroup, "none")
	h.in(func() error {
		d, err := open(c, Options{Log: io.Discard})
		if err != nil {
			return err
		}
		return d.close()
	})
	c.Cgroup = "" // and one that comes later is no change
	_, err = c.Reread(path)
	h.must(err)
}

// A program of somebody else that allows none beside it is named, not a security module; plait does not come up, and leaves nothing.
func TestCgroupOccupied(t *testing.T) {
	h := newHost(t)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SockOps, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
	h.must(err)
	defer p.Close()
	info, err := p.Info()
	h.must(err)
	id, _ := info.ID()
	d, err := os.Open(h.cgroup)
	h.must(err)
	defer d.Close()
	h.must(link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(d.Fd()), Program: p, Attach: ebpf.AttachCGroupSockOps}))
	defer func() {
		h.must(link.RawDetachProgram(link.RawDetachProgramOptions{Target: int(d.Fd()), Program: p, Attach: ebpf.AttachCGroupSockOps}))
	}()
	whole := h.cgroup
	for what, cgroup := range map[string]string{"there": whole, "above": h.group(filepath.Join(whole, "inner"))} {
		h.cgroup = cgroup
		_, err := h.try(filepath.Join(h.dir, "control"), takeAll)
		want := fmt.Sprintf("attach to the connections of cgroup %s: %s has program %d of somebody else", cgroup, whole, id)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", what, err, want)
		}
	}
	h.cgroup = whole
	if registered() {
		t.Error("the kernel knows plait")
	}
}

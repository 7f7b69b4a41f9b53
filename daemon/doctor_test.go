package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

func TestMissingCapabilities(t *testing.T) {
	for set, want := range map[string][]string{
		"000001ffffffffff": nil,
		"0000000000000000": {"CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"},
		"000000c000001000": nil,               // the three
		"0000000000201000": nil,               // CAP_SYS_ADMIN has two of them in it
		"0000000000200000": {"CAP_NET_ADMIN"}, // but not the third
		"0000008000001000": {"CAP_PERFMON"},
	} {
		if c := checkPrivilege("CapEff:\t" + set + "\n"); len(want) > 0 && !strings.HasSuffix(c.Do, "in a container, give it these") {
			t.Errorf("%s: %+v: root in a container may lack them, too", set, c)
		}
		got, err := missingCapabilities("Name:\tplait\nCapEff:\t" + set + "\nCapBnd:\t000001ffffffffff\n")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", set, got, err, want)
		}
	}
	if _, err := missingCapabilities(""); err == nil {
		t.Error("capabilities were found in nothing")
	}
}

func TestCheckConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plait.yaml")
	for text, want := range map[string]Check{
		"": {"configuration", Info, "there is no " + file + ": all is as by default", ""},
		"congestion: {mode: observe, rules: [{port: 22, mode: off}]}": {"configuration", OK, file + ": congestion observe (rules: 1), egress off, ackpath off", ""},
		"congestion:\n  polcy: plait\n  holdout_percent: 120\n":       {"configuration", Fail, file + ":2:3: polcy: unknown key: expected policy? (mode, policy, holdout_percent, allow or rules); and 1 more", ""},
	} {
		c, err := DefaultConfig(), error(nil)
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err = ReadConfig(file)
		}
		if got := CheckConfig(file, c, err); got != want {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
		_ = os.Remove(file)
	}
}

func TestCgroupMount(t *testing.T) {
	for mounts, want := range map[string]string{
		"proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n":                                         "/sys/fs/cgroup",
		"cgroup /sys/fs/cgroup/memory cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\nx /y cgroup2 rw 0 0": "/sys/fs/cgroup/unified",
		`none /a\040b cgroup2 rw 0 0`: "/a b",
	} {
		if got, err := cgroupMount(mounts); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", mounts, got, err, want)
		}
	}
	none, err := cgroupMount("proc /proc proc rw 0 0\n")
	if c := checkCgroup(false, none, err); c.Health != Info {
		t.Errorf("without cgroup v2, congestion off: %+v", c)
	}
	if c := checkCgroup(true, none, err); c.Health != Fail || !strings.Contains(c.Do, "mount -t cgroup2 none /run/cgroup2") {
		t.Errorf("without cgroup v2: %+v, want fail and what to do", c)
	}
}

// kernelTypes is type information with these structures and functions in it.
func kernelTypes(t *testing.T, types ...btf.Type) *btf.Spec {
	t.Helper()
	b, err := btf.NewBuilder(types, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestCheckKernel(t *testing.T) {
	ops := &btf.Struct{Name: "bpf_struct_ops_tcp_congestion_ops"}
	link := &btf.Func{Name: "bpf_struct_ops_link_create", Type: &btf.FuncProto{Return: &btf.Void{}}}
	other := &btf.Struct{Name: "tcp_congestion_ops"}
	for name, c := range map[string]struct {
		types []btf.Type
		want  []Health
	}{
		"Linux 6.4 and newer": {[]btf.Type{ops, link}, []Health{OK, OK, OK}},
		"Linux 6.1":           {[]btf.Type{ops, other}, []Health{OK, OK, Warn}},
		"without struct_ops":  {[]btf.Type{other}, []Health{OK, Fail}},
	} {
		var got []Health
		for _, check := range checkKernel(kernelTypes(t, c.types...), nil) {
			got = append(got, check.Health)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	if got := checkKernel(nil, errors.New("no such file")); len(got) != 1 || got[0].Health != Fail {
		t.Errorf("without type information: %+v, want fail", got)
	}
}

func TestCheckUp(t *testing.T) {
	down := fmt.Errorf("ask: %w", ErrNotRunning)
	for _, c := range []struct {
		registered, linked, exits bool
		err                       error
		want                      Check
	}{
		{true, true, true, nil, Check{"plait", OK, "up, version 1.2.3", ""}},
		{false, true, false, down, Check{"plait", OK, "not up", ""}},
		{true, true, true, down, Check{"plait", Warn, "another plait is up, with another control socket: the kernel has its congestion control", "name its control socket with --control PATH" + orKill}},
		{true, false, false, down, Check{"plait", Warn, "no daemon, but the kernel still has the congestion control of an earlier one", "remove it with plait down"}},
		{false, true, true, down, Check{"plait", Warn, "another plait is up, with another control socket: it has the BGP exits of this network namespace", "name its control socket with --control PATH" + orKill}},
		{true, true, false, fmt.Errorf("%w\nx", fs.ErrPermission), Check{"plait", Warn, "permission denied", "run this as root, on the host plait is on"}},
		{true, true, false, fmt.Errorf("%w: see its log\nx", ErrNoAnswer), Check{"plait", Warn, "no answer: see its log", ""}},
	} {
		if got := checkUp(c.registered, c.linked, c.exits, "1.2.3", c.err); got != c.want {
			t.Errorf("registered %v, linked %v, exits %v, %v:\ngot  %+v\nwant %+v", c.registered, c.linked, c.exits, c.err, got, c.want)
		}
	}
}

// What fails or warns says what to do about it; only failures make a host unusable.
func TestChecks(t *testing.T) {
	for _, c := range []Check{
		checkPrivilege("CapEff:\t0\n"), checkPrivilege(""), checkBPF(errors.New("x")), checkTracing(errors.New("x")), checkTracing(nil), checkDefault("plait"),
		checkDefault("cubic"), checkDefault(""), checkIdle("1"), checkIdle("0"), checkQdisc("fq"), checkQdisc(""),
	} {
		if strings.HasPrefix(c.Found, " ") {
			t.Errorf("%+v: the name of what was found is missing", c)
		}
		if bad := c.Health == Fail || c.Health == Warn; bad != (c.Do != "") {
			t.Errorf("%+v: what to do belongs to what is wrong", c)
		}
		if Usable([]Check{c}) != (c.Health != Fail) {
			t.Errorf("%+v: usable %v", c, Usable([]Check{c}))
		}
	}
}

// What takes rights to find out is not told as missing to who has not got them.
func TestCheckLeversWithoutRights(t *testing.T) {
	for _, c := range checkLevers(false, true, AckpathStatus{}, false) {
		if c.Health != Info || !strings.HasPrefix(c.Do, "run plait doctor as root; in a container") {
			t.Errorf("%+v: want that it is not known, and root can find out", c)
		}
	}
}

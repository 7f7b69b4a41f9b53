package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/agent"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// TestMain builds plait, which is the guest's agent, unless $PLAIT_AGENT is one. A build of its own makes other machines
// than `make build`, for they depend on every byte of the agent.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		if os.Getenv("PLAIT_TEST") != "vm" || os.Getenv("PLAIT_AGENT") != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "plait-agent-")
		if err == nil {
			defer os.RemoveAll(dir)
			err = os.Setenv("PLAIT_AGENT", filepath.Join(dir, "plait"))
		}
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", os.Getenv("PLAIT_AGENT"), "../cmd/plait")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, buildErr := build.CombinedOutput(); errors.Join(err, buildErr) != nil {
			fmt.Fprintf(os.Stderr, "build the agent: %v: %s\n", errors.Join(err, buildErr), out)
			return 1
		}
		return m.Run()
	}())
}

// Tests with one machine at a time run beside each other, as many as there are cores (t.Parallel): no result depends on it.

// runFile runs an experiment file as `plait lab run` does.
func runFile(tb testing.TB, jobs int, name string, o experiment.Options) *result.File {
	tb.Helper()
	return runInto(tb, tb.TempDir(), jobs, name, o)
}

// runInto is runFile with a directory for captures.
func runInto(tb testing.TB, captures string, jobs int, name string, o experiment.Options) *result.File {
	tb.Helper()
	rung.VM(tb)
	e, err := experiment.Load(name, o)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := New("test", jobs)
	if err != nil {
		tb.Fatal(err)
	}
	l.Terminal = nil
	f, err := l.Run(tb.Context(), e, Options{Captures: captures})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// near is how much of its limit a figure may be away and still be named: figures that depend on chance are others with each build, and may miss the bound next time.
const near = 0.05

// holds checks that all bounds of an experiment hold. With -v it names those that hardly do.
func holds(t *testing.T, f *result.File) {
	t.Helper()
	for _, c := range f.Cells {
		if c.Invalid != "" {
			t.Errorf("%s %v seed %d: invalid: %s", c.Variant, c.Params, c.Seed, c.Invalid)
		}
	}
	for _, b := range f.Bounds {
		switch {
		case !b.OK:
			t.Errorf("bound does not hold: %+v", b)
		case b.Operator != "==" && math.Abs(b.Left-b.Right) < near*math.Abs(b.Right):
			t.Logf("near its limit: %g of %g: %s, %v", b.Left, b.Right, b.Expression, b.Params)
		}
	}
}

// busy keeps the host's processors busy while do runs.
func busy(t *testing.T, do func()) {
	for range 4 {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = loop.Process.Kill()
			_ = loop.Wait()
		}()
	}
	do()
}

// freshCache is a cache that has the image and no machine.
func freshCache(t *testing.T, l *Lab) string {
	t.Helper()
	images, dir := filepath.Join(l.Cache, "image"), t.TempDir()
	if err := os.Symlink(images, filepath.Join(dir, "image")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// onBusyHost runs an experiment on the host as it is, and on a busy one as two machines at a time, with another cache.
func onBusyHost(t *testing.T, cache, path string) (first *result.File, want, got []byte) {
	first = runFile(t, 1, path, experiment.Options{})
	holds(t, first)
	want, err := result.Encode(first)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PLAIT_CACHE", cache)
	busy(t, func() {
		if got, err = result.Encode(runFile(t, 2, path, experiment.Options{})); err != nil {
			t.Fatal(err)
		}
	})
	return first, want, got
}

// A result file has the same bytes whatever else the host does, however many machines run beside each other, and whenever they were booted: with netem's links, emulated ones,
// MPTCP, and FRR's routers. The machine of the second cache is booted on the busy host. It needs the right to real-time priorities (decision 4).
func TestResultsDoNotDependOnTheHost(t *testing.T) {
	rung.VM(t)
	l, err := New("test", 1)
	if err != nil {
		t.Fatal(err)
	}
	another := freshCache(t, l)
	for _, name := range []string{"lossy", "cellular", "mptcp", "routed"} {
		t.Run(name, func(t *testing.T) {
			first, want, got := onBusyHost(t, another, "testdata/"+name+".yaml")
			if first.Cells[0].Metrics["flow"]["bytes"] == first.Cells[1].Metrics["flow"]["bytes"] {
				t.Error("both seeds give the same number of bytes: the seed changes nothing")
			}
			if !bytes.Equal(got, want) {
				t.Errorf("two machines on a busy host gave another result than one:\n%s", got)
			}
		})
	}
}

// What makes numbers mean nothing gives none, but the reason.
func TestInvalid(t *testing.T) {
	t.Parallel()
	f := runFile(t, 1, "testdata/invalid.yaml", experiment.Options{})
	reasons := map[string]string{
		"no_such_algorithm": "plait_none",
		"no_subflow":        "application flow: 1 of 2 MPTCP subflows after 1s",
		"too_short":         "application flow: ended within 1s of its start, before its MPTCP subflows were counted",
		"too_slow":          "not done 1.5 s after its start (timeout_s)",
		"setup_fails":       "exit status 7: out of order",
		"setup_endless":     "not done after 2m0s",
		"change_fails":      "event at 0.5 s: run \"sh -c echo never heard of it; exit 8\" in client: exit status 8: never heard of it",
		"agent_dies":        "the guest crashed: SIGQUIT: quit",
		"kernel_panics":     "Kernel panic - not syncing: sysrq triggered crash",
		"memory_ends":       "the guest ran out of its memory of 1 GiB, and its kernel killed perl",
		"no_second_path":    "division: run arms from server to client: send: address 2001:db8:99::1 of the receiver answers no heartbeat of 2001:db8:1::1 in 10s",
		"good":              "",
	}
	if len(f.Cells) != len(reasons) {
		t.Errorf("%d cells, want %d", len(f.Cells), len(reasons))
	}
	for _, c := range f.Cells {
		switch want := reasons[c.Variant]; {
		case want == "" && c.Invalid != "", !strings.Contains(c.Invalid, want):
			t.Errorf("%s: %q, want %q", c.Variant, c.Invalid, want)
		case want != "" && (len(c.Metrics) > 0 || len(c.Series) > 0):
			t.Errorf("%s: an invalid cell has numbers: %v", c.Variant, c.Metrics)
		}
	}
	if got := Status(f); got != ExitInvalid {
		t.Errorf("exit status %d, want %d", got, ExitInvalid)
	}
}

func TestBGPSessionCannotBeEstablished(t *testing.T) {
	t.Parallel()
	f := runFile(t, 1, "testdata/bgp.yaml", experiment.Options{})
	if got := f.Cells[0].Invalid; !strings.Contains(got, "not ready after 1m0s") || !strings.Contains(got, "BGP") {
		t.Errorf("invalid: %q, want that a BGP session is not ready", got)
	}
}

func TestEvents(t *testing.T) {
	holds(t, runFile(t, 2, "testdata/events.yaml", experiment.Options{}))
}

// Bursts are paced and transfers are not: no packet goes out between them before the time stamp it gets, which would make the path look shorter than it is;
// and what a timer sends again, with the departure time of the next paced packet, does not tell the round trip.
func TestPacingEnds(t *testing.T) {
	t.Parallel()
	holds(t, runFile(t, 1, "testdata/pacing.yaml", experiment.Options{}))
}

// Exits that end in the client's access line are found to do so while a transfer runs, and those that do not are not.
func TestSharedBottleneck(t *testing.T) {
	holds(t, runFile(t, 0, "testdata/shared.yaml", experiment.Options{}))
}

// Each kernel takes the programs of the levers, which its verifier reads in its own way. The oldest kernel lacks seeds for netem's losses, so the lab emulates the link there. Its guest has the oldest FRR too.
func TestKernels(t *testing.T) {
	for _, c := range []struct{ path, kernel string }{
		{"testdata/lossy.yaml", "6.1"}, {"testdata/lossy.yaml", "7.2"},
		{"testdata/mptcp.yaml", "6.1"}, {"testdata/mptcp.yaml", "7.2"},
		{"experiment/egress-rendered.yaml", "6.1"},
		{"testdata/doctor.yaml", "6.12"}, {"testdata/doctor.yaml", "7.2"},
		{"testdata/up.yaml", "6.1"}, {"testdata/up.yaml", "6.12"}, {"testdata/up.yaml", "7.2"},
	} {
		t.Run(strings.TrimSuffix(filepath.Base(c.path), ".yaml")+" "+c.kernel, func(t *testing.T) {
			t.Parallel()
			f := runFile(t, 1, c.path, experiment.Options{Set: []string{`kernel="` + c.kernel + `"`}, Seeds: 1})
			holds(t, f)
			if !sameKernel(t, f.Provenance.Kernel, c.kernel) {
				t.Errorf("kernel %s, want %s", f.Provenance.Kernel, c.kernel)
			}
		})
	}
}

// Every kernel has the congestion controls whose names experiment files may have, and no others before plait comes.
func TestControls(t *testing.T) {
	t.Parallel()
	holds(t, runFile(t, 1, "testdata/controls.yaml", experiment.Options{Set: []string{`names="` + strings.Join(experiment.KernelControls, " ") + `"`}}))
}

// sameKernel says whether a release is of the wanted generation. Backports move on: theirs may be newer.
func sameKernel(t *testing.T, release, want string) bool {
	t.Helper()
	var got, least [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &got[0], &got[1]); err != nil {
		t.Fatalf("kernel %q: %v", release, err)
	}
	if _, err := fmt.Sscanf(want, "%d.%d", &least[0], &least[1]); err != nil {
		t.Fatalf("kernel %q: %v", want, err)
	}
	if want == "7.2" {
		return slices.Compare(got[:], least[:]) >= 0
	}
	return got == least
}

// A run that is cancelled before the machine has booted leaves no half-made state.
func TestCancelBoot(t *testing.T) {
	rung.VM(t)
	l, err := New("test", 1)
	if err != nil {
		t.Fatal(err)
	}
	l.Terminal, l.Cache = nil, freshCache(t, l)
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	_, err = l.Base(ctx, "6.12", func(string) { stop(why) })
	if !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	if left, _ := os.ReadDir(filepath.Join(l.Cache, "state")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestMachineRemoved: other runs, or a person, removed the booted machine from the cache while a cell ran.
func TestMachineRemoved(t *testing.T) {
	rung.VM(t)
	l, err := New("test", 1)
	if err != nil {
		t.Fatal(err)
	}
	quietly := func(string) {}
	b, err := l.Base(t.Context(), "6.12", quietly)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(string(b.state)); err != nil {
		t.Fatal(err)
	}
	state, err := l.ready(t.Context(), b, &agent.Job{Spec: &experiment.Spec{Kernel: "6.12"}}, quietly)
	if err != nil || !whole(string(state)) {
		t.Errorf("%s, %v", state, err)
	}
	b.state += "-of-another-build"
	if _, err := l.ready(t.Context(), b, &agent.Job{Spec: &experiment.Spec{Kernel: "6.12"}}, quietly); err == nil || !strings.Contains(err.Error(), "run the experiment again") {
		t.Errorf("a machine of another build: %v", err)
	}
}

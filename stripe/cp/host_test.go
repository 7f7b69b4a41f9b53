package cp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
	"plait.dev/plait/stripe"
)

// hosts are two, joined by two links.
type hosts struct {
	testing.TB
	near, far string // namespaces
	ssh       string // command; "": starts the far side in its namespace
}

func newHosts(t testing.TB, rate string) *hosts {
	rung.Netns(t)
	name := fmt.Sprintf("plait-cp-%d-%d", os.Getpid(), rand.Uint32N(1<<16))
	h := &hosts{TB: t, near: name + "n", far: name + "f"}
	for _, ns := range []string{h.near, h.far} {
		h.run("ip", "netns", "add", ns)
		t.Cleanup(func() { h.run("ip", "netns", "del", ns) })
	}
	for i := range 2 {
		n, f := fmt.Sprint("n", i), fmt.Sprint("f", i)
		h.run("ip", "-n", h.near, "link", "add", n, "type", "veth", "peer", "name", f, "netns", h.far)
		for ns, dev := range map[string]string{h.near: n, h.far: f} {
			h.run("ip", "-n", ns, "addr", "add", fmt.Sprintf("10.79.%d.%d/24", i, 1+strings.Index("nf", dev[:1])), "dev", dev)
			h.run("ip", "-n", ns, "link", "set", dev, "up")
			if rate != "" {
				h.run("tc", "-n", ns, "qdisc", "add", "dev", dev, "root", "tbf", "rate", rate, "burst", "64k", "latency", "50ms")
			}
		}
	}
	for _, ns := range []string{h.near, h.far} { // carriers take a moment
		for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			out, err := exec.Command("ip", "-n", ns, "-o", "link", "show", "up").CombinedOutput()
			if err == nil && strings.Count(string(out), "LOWER_UP") == 2 {
				break
			}
			if time.Since(start) > 30*time.Second {
				t.Fatalf("links of %s do not come up: %v\n%s", ns, err, out)
			}
		}
	}
	return h
}

func (h *hosts) run(name string, args ...string) {
	h.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		h.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// start runs cp at the near host.
func (h *hosts) start(out io.Writer, args ...string) *exec.Cmd {
	h.Helper()
	self, err := os.Executable()
	if err != nil {
		h.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	ssh := h.ssh
	if ssh == "" {
		ssh = "ip netns exec " + h.far + " " + self
	}
	cmd.Env = append(os.Environ(), "CP_TEST_NEAR="+ssh, "CP_TEST_PID="+filepath.Join(h.TempDir(), "pid"))
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := netns.Start(h.near, cmd); err != nil {
		h.Fatal(err)
	}
	return cmd
}

// copy runs cp at the near host and returns its last report, and its process.
func (h *hosts) copy(args ...string) (end Snapshot, state *os.ProcessState) {
	h.Helper()
	var out bytes.Buffer
	cmd := h.start(&out, args...)
	if err := cmd.Wait(); err != nil {
		h.Fatalf("%v\n%s", err, out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil {
		h.Fatal(err)
	}
	return end, cmd.ProcessState
}

// random writes a file, a piece at a time.
func random(t testing.TB, file string, n int) {
	t.Helper()
	f, err := os.Create(file)
	if err == nil {
		_, err = io.CopyN(f, rand.NewChaCha8([32]byte{3}), int64(n))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// share copies dir/file to dir/copy, one of them at the far host, and returns the least that one of the two links carried of it.
func (h *hosts) share(what, dir string) (share float64) {
	h.Helper()
	args := []string{dir + "/file", "host:" + dir + "/copy"}
	if what == "pull" {
		args = []string{"host:" + dir + "/file", dir + "/copy"}
	}
	end, _ := h.copy(args...)
	want, err := os.ReadFile(dir + "/file")
	if err != nil {
		h.Fatal(err)
	}
	if got, err := os.ReadFile(dir + "/copy"); err != nil || !bytes.Equal(got, want) {
		h.Fatalf("%s: %d bytes, %v", what, len(got), err)
	}
	if len(end.Links) != 2 {
		h.Fatalf("%s: %d links", what, len(end.Links))
	}
	share = 1
	for _, l := range end.Links {
		n := l.SentBytes + l.ReceivedBytes
		h.Logf("%s: %s carried %d of %d bytes, %d of them copies", what, l.Name, n, len(want), l.CopiedBytes)
		share = min(share, float64(n)/float64(len(want)))
	}
	return share
}

func TestHostCopiesOverBothLinks(t *testing.T) {
	h := newHosts(t, "20mbit")
	for _, name := range []string{"push", "pull"} {
		var share float64
		for _, size := range []int{6e6, 30e6} { // a busy machine may be late to use a link: then it has more time
			dir := t.TempDir()
			random(t, filepath.Join(dir, "file"), size)
			if share = h.share(name, dir); share >= 0.25 {
				break
			}
		}
		if share < 0.25 {
			t.Errorf("%s: a link carried less than a quarter", name)
		}
	}
}

// A link that cannot be used is in the last report with its reason: one that has not answered by then, and one that was lost on the way.
func TestHostTellsLinksNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		bytes  int
		how    []string // done to n1
		during bool     // the copy, when n1 has carried something; otherwise before
		want   string
	}{
		"silent": {1000, []string{"neigh", "replace", "10.79.1.2", "lladdr", "02:00:00:00:00:01", "dev", "n1"}, false, stripe.NotYet},
		"down":   {12e6, []string{"link", "set", "n1", "down"}, true, "the interface is down"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHosts(t, "20mbit")
			dir := t.TempDir()
			random(t, filepath.Join(dir, "file"), c.bytes)
			done := make(chan error, 1)
			do := func() { done <- exec.Command("ip", append([]string{"-n", h.near}, c.how...)...).Run() }
			if c.during {
				go func() { h.carries("n1", 500_000); do() }()
			} else {
				do()
			}
			end, _ := h.copy(filepath.Join(dir, "file"), "host:"+dir+"/copy")
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(end.Links, func(l stripe.LinkStats) bool { return l.Name == "n1" })
			told := func(l stripe.LinkStats) bool { // on a busy machine the attempt has failed before the copy was over
				return strings.Contains(l.Error, c.want) || c.want == stripe.NotYet && strings.HasPrefix(l.Error, "no answer ")
			}
			if i < 0 || end.Links[i].SentBytes > 0 != c.during || !told(end.Links[i]) {
				t.Errorf("%+v; want n1 with %q, and that it has carried: %v", end.Links, c.want, c.during)
			}
			if n := slices.IndexFunc(end.Links, func(l stripe.LinkStats) bool { return l.Name == "n0" && l.Error == "" }); n < 0 {
				t.Errorf("%+v; n0 works until the end", end.Links)
			}
		})
	}
}

// carries waits, for a minute at most, until a device of the near host has sent so many bytes.
func (h *hosts) carries(device string, bytes int) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var links []struct {
			Stats struct{ Tx struct{ Bytes int } } `json:"stats64"`
		}
		out, err := exec.Command("ip", "-n", h.near, "-s", "-j", "link", "show", device).Output()
		if err == nil && json.Unmarshal(out, &links) == nil && len(links) == 1 && links[0].Stats.Tx.Bytes >= bytes {
			return
		}
	}
}

// So is one of the far side that no link of this host reaches; those that carry are counted, too.
func TestHostTellsFarLinksNotUsed(t *testing.T) {
	h := newHosts(t, "20mbit")
	h.run("ip", "-n", h.far, "link", "add", "apart", "type", "veth", "peer", "name", "other")
	h.run("ip", "-n", h.far, "addr", "add", "fd80::1/64", "dev", "apart", "nodad")
	for _, dev := range []string{"apart", "other"} {
		h.run("ip", "-n", h.far, "link", "set", dev, "up")
	}
	dir := t.TempDir()
	size := 4e6
	random(t, filepath.Join(dir, "file"), int(size))
	end, _ := h.copy(filepath.Join(dir, "file"), "host:"+dir+"/copy")
	if slices.ContainsFunc(end.FarLinks, func(l stripe.LinkStats) bool { return l.Name != "apart" && float64(l.SentBytes) < size/4 }) { // a busy machine was late to use it
		size *= 5
		random(t, filepath.Join(dir, "file"), int(size))
		end, _ = h.copy(filepath.Join(dir, "file"), "host:"+dir+"/again")
	}
	far := map[string]stripe.LinkStats{}
	for _, l := range end.FarLinks {
		far[l.Name] = l
	}
	if l := far["apart"]; len(far) != 3 || l.SentBytes > 0 || !strings.Contains(l.Error, "same family") {
		t.Errorf("%+v; want that no link of this host has an address of the family of apart", end.FarLinks)
	}
	for _, name := range []string{"f0", "f1"} {
		if l := far[name]; float64(l.SentBytes) < size/4 || l.Error != "" {
			t.Errorf("%s: %+v; want a quarter of %g bytes at least", name, l, size)
		}
	}
}

// Policies of the far side's links hold in both directions.
func TestHostFarLinks(t *testing.T) {
	h := newHosts(t, "20mbit")
	h.run("ip", "netns", "exec", h.far, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1") // otherwise n0 leads to f1's address, too
	dir := t.TempDir()
	random(t, filepath.Join(dir, "file"), 3e6)
	// A backup takes over where the other one is silent, which it is for a moment where the machine is busy; without a policy it would have half.
	for links, limit := range map[string]struct{ f0, f1 float64 }{"f1": {0, 4e6}, "f0=0.2,f1": {1.2e6, 4e6}, "f0,f1:cap=1MB": {4e6, 1e6}, "f0,f1:backup": {4e6, 0.5e6}} {
		t.Setenv("CP_TEST_FAR_LINKS", links)
		for i, args := range [][]string{{filepath.Join(dir, "file"), "host:" + dir + "/pushed" + links}, {"host:" + dir + "/file", dir + "/pulled" + links}} {
			end, _ := h.copy(args...)
			carried := map[string]float64{}
			for _, l := range end.FarLinks {
				carried[l.Name] = float64(l.SentBytes + l.ReceivedBytes)
			}
			if end.Copied != 1 || carried["f0"] > limit.f0 || carried["f1"] > limit.f1 || carried["f0"]+carried["f1"] < 3e6 {
				t.Errorf("%s, pull %d: %+v; want at most %+v", links, i, end, limit)
			}
		}
	}
}

// As fast as two links without a limit go, neither end holds more than 64 MB.
func TestHostMemory(t *testing.T) {
	h := newHosts(t, "")
	dir := t.TempDir()
	random(t, filepath.Join(dir, "file"), 256<<20)
	for name, args := range map[string][]string{"push": {filepath.Join(dir, "file"), "host:" + dir + "/pushed"}, "pull": {"host:" + dir + "/file", dir + "/pulled"}} {
		told := filepath.Join(dir, name)
		t.Setenv(memoryVariable, told)
		end, _ := h.copy(args...)
		var ends []int // in kB
		for start := time.Now(); len(ends) < 2; time.Sleep(10 * time.Millisecond) {
			if ends = nil; time.Since(start) > 10*time.Second {
				t.Fatalf("%s: the ends do not say how much memory they held", name)
			}
			b, _ := os.ReadFile(told)
			for line := range strings.Lines(string(b)) {
				var n int
				if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &n); err != nil {
					t.Fatalf("%s: %q: %v", name, line, err)
				}
				ends = append(ends, n)
			}
		}
		t.Logf("%s: %.1f Gbit/s, %d kB", name, float64(end.Bytes)*8/1e9/end.Seconds, ends)
		if most := slices.Max(ends); most > 64<<10 {
			t.Errorf("%s: one end held %d kB", name, most)
		}
	}
}

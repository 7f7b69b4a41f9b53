package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/lab/netns"
)

// cpuNow is what the process of this benchmark, which is sender and receiver, has used. Almost all work of the kernel's on a veth
// link is done where a packet is sent from, so it is in there; what other programs of the machine use is not.
func cpuNow(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuOf is what another process has used; the kernel counts it in ticks of 10 ms.
func cpuOf(b testing.TB, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// veth joins the host's namespace to another, as two machines on one Ethernet.
func (h *host) veth(link string) (address, peer string) {
	h.Helper()
	peer = h.ns + "-peer"
	h.ip("netns add " + peer)
	h.Cleanup(func() { h.ip("netns del " + peer) })
	h.ip("-n " + h.ns + " link add net0 mtu 1500 type veth peer name net0 mtu 1500 netns " + peer)
	for i, ns := range []string{h.ns, peer} {
		h.ip(fmt.Sprintf("-n %s addr add 10.9.0.%d/24 dev net0", ns, i+1))
		h.ip("-n " + ns + " link set net0 " + link + " up")
	}
	for _, ns := range []string{h.ns, peer} { // a link drops what is sent before the kernel has noticed its carrier
		h.eventually(20*time.Second, "the link is up", func() bool {
			out, err := exec.Command("ip", "-n", ns, "-br", "link", "show", "net0").Output()
			return err == nil && strings.Contains(string(out), " UP ")
		})
	}
	h.must(netns.Do(peer, func() error { return os.WriteFile(current, []byte(systemDefault), 0) }))
	return "10.9.0.1", peer
}

// bulk sends n bytes from the server to the client as fast as it goes.
func bulk(b *testing.B, p pair, n int64) (wall, cpu time.Duration) {
	b.Helper()
	buffer := make([]byte, 128<<10)
	begin, used := time.Now(), cpuNow(b)
	go func() {
		for left := n; left > 0; left -= int64(len(buffer)) {
			if _, err := p.server.Write(buffer); err != nil {
				return // the receiver notices
			}
		}
		_ = p.server.CloseWrite()
	}()
	into := make([]byte, 128<<10)
	got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ net.Conn }{p.client}, into)
	if err != nil || got != n {
		b.Fatalf("%d bytes arrived, %v, want %d", got, err, n)
	}
	return time.Since(begin), cpuNow(b) - used
}

// A transfer at full speed over a veth link, MTU 1500, between two namespaces of this machine, with the kernel's own CUBIC, with
// plait's CUBIC and with plait's default policy. The three take turns, so that what else the machine does is the same for all.
// CPU seconds are per GB and those of sender and receiver together; the daemon's own are beside them.
func BenchmarkThroughput(b *testing.B) {
	// As a network card that cuts segments of 64 KB into packets: few ACKs.
	b.Run("segments", func(b *testing.B) { throughput(b, "mtu 1500", 512<<20) })
	// Every packet by itself, and one ACK for two: the most that plait has to do per byte.
	b.Run("packets", func(b *testing.B) { throughput(b, "gso_max_segs 1", 128<<20) })
}

// throughput sends volume bytes, a multiple of what is written at a time, each way.
func throughput(b *testing.B, link string, volume int64) {
	h := newHost(b)
	address, peer := h.veth(link)
	p := h.up(fmt.Sprintf("%s\n  rules:\n    - {port: %d, policy: fixed:cubic}", takeAll, portNew))
	ways := []struct {
		name, choice, uses string
		port               int
		wall, cpu          time.Duration
	}{
		{name: "kernel-cubic", choice: "cubic", uses: "cubic", port: portOff},
		{name: "plait-cubic", uses: "plait", port: portNew},
		{name: "plait", uses: "plait", port: portMany},
	}
	begin := cpuOf(b, p.cmd.Process.Pid)
	for b.Loop() {
		for i := range ways {
			w := &ways[i]
			c, err := h.connectTo(address, w.port, peer, w.choice)
			h.must(err)
			h.uses(w.name, c, w.uses, w.uses)
			wall, cpu := bulk(b, c, volume)
			c.close()
			w.wall, w.cpu = w.wall+wall, w.cpu+cpu
		}
	}
	gb := float64(b.N) * float64(volume) / 1e9
	for _, w := range ways {
		b.ReportMetric(w.cpu.Seconds()/gb, w.name+"-cpu-s/GB")
		b.ReportMetric(gb*8/w.wall.Seconds(), w.name+"-Gbit/s")
	}
	b.ReportMetric(ways[1].cpu.Seconds()/ways[0].cpu.Seconds(), "plait-cubic-times-the-cpu")
	b.ReportMetric(ways[2].cpu.Seconds()/ways[0].cpu.Seconds(), "plait-times-the-cpu")
	b.ReportMetric((cpuOf(b, p.cmd.Process.Pid)-begin).Seconds()/(2*gb), "daemon-cpu-s/GB")
	b.ReportMetric(0, "ns/op") // of all three together, it says nothing
}

// Connections that are opened, carry 1000 bytes and are closed, as fast as it goes, for a minute in plait's cgroup and a minute out
// of it, in turns of 5 s, so that what else the machine does is the same for both. Nothing may be left of the connections.
func BenchmarkConnections(b *testing.B) {
	h := newHost(b)
	const threads, turns, turn = 4, 12, 5 * time.Second
	p := h.up("  policy: rtcp")
	stays := h.connect(0, "")
	var n [2]int
	var took, cpu [2]time.Duration
	begin := cpuOf(b, p.cmd.Process.Pid)
	for b.Loop() {
		for i := range 2 * turns {
			way := i % 2
			h.enter([]string{h.outside, h.cgroup}[way])
			start, used := time.Now(), cpuNow(b)
			n[way] += h.churn(threads, turn)
			took[way], cpu[way] = took[way]+time.Since(start), cpu[way]+cpuNow(b)-used
		}
	}
	daemonCPU := cpuOf(b, p.cmd.Process.Pid) - begin
	most := h.memory(p, "VmHWM")
	h.settled(p, 1+n[1])
	dropped := h.status(p).Counters["samples_dropped"]
	_, err := p.Stop(b.Context())
	h.must(err)
	h.uses("one that stays, after down", stays, systemDefault, systemDefault)
	h.clean("after down")
	rate := func(way int) float64 { return float64(n[way]) / took[way].Seconds() }
	each := func(way int) float64 { return float64(cpu[way].Microseconds()) / float64(n[way]) }
	b.ReportMetric(rate(0), "without-connections/s")
	b.ReportMetric(rate(1), "plait-connections/s")
	b.ReportMetric(each(0), "without-cpu-us/connection")
	b.ReportMetric(each(1), "plait-cpu-us/connection")
	b.ReportMetric(each(1)/each(0), "plait-times-the-cpu")
	b.ReportMetric(100*daemonCPU.Seconds()/took[1].Seconds(), "daemon-%-of-a-core")
	b.ReportMetric(float64(most)/1e6, "daemon-MB-at-most")
	b.ReportMetric(float64(dropped), "samples-dropped")
	b.ReportMetric(0, "ns/op")
}

// A hundred thousand sockets that have all sent once, and some of which send: what the daemon costs, and what the kernel needs for each socket. The other ends are on
// this host, too, and send nothing: the daemon hears nothing of them.
func BenchmarkSockets(b *testing.B) {
	for _, rate := range []int{0, 1000, 5000} {
		b.Run(fmt.Sprintf("bursts=%d", rate), func(b *testing.B) { sockets(b, rate) })
	}
}

// A process may have 20,000 files on many systems.
const (
	holders    = 12
	connecting = 100_000 / holders // connections of each
)

// holder is a process with connections.
type holder struct {
	cmd    *exec.Cmd
	input  io.Closer
	output *bufio.Reader
}

func (h *host) hold(rate int) (all []holder) {
	h.Helper()
	for i := range holders {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d", holderVariable, i, connecting, rate/holders))
		cmd.Stderr = os.Stderr
		input, err := cmd.StdinPipe()
		h.must(err)
		output, err := cmd.StdoutPipe()
		h.must(err)
		h.must(netns.Start(h.ns, cmd))
		h.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		all = append(all, holder{cmd, input, bufio.NewReader(output)})
	}
	return all
}

// say waits until all processes have said a line.
func (h *host) say(all []holder, want string) {
	h.Helper()
	for _, o := range all {
		if line, err := o.output.ReadString('\n'); line != want+"\n" {
			h.Fatalf("a process with connections says %q, %v, want %s", line, err, want)
		}
	}
}

// end closes all connections and returns how many bursts there were.
func (h *host) end(all []holder) (bursts int) {
	h.Helper()
	for _, o := range all {
		h.must(o.input.Close())
	}
	for _, o := range all {
		line, err := o.output.ReadString('\n')
		h.must(err)
		n, err := strconv.Atoi(strings.TrimSpace(line))
		h.must(errors.Join(err, o.cmd.Wait()))
		bursts += n
	}
	return bursts
}

// sockets holds the connections for a minute, while rate of them send a burst of 10 KB each second.
func sockets(b *testing.B, rate int) {
	h := newHost(b)
	const sockets = 2 * holders * connecting
	slab := func() int { return h.kilobytes("/proc/meminfo", "Slab") }
	begin := slab()
	all := h.hold(0)
	h.say(all, "open")
	h.say(all, "sent")
	without := slab() - begin
	h.end(all)
	time.Sleep(time.Second) // closed sockets are freed a little later

	p := h.up("")
	alone := h.memory(p, "RssAnon") // without the ring of samples, which is as large for one socket
	begin = slab()
	all = h.hold(rate)
	h.say(all, "open")
	h.say(all, "sent")
	with := slab() - begin
	time.Sleep(5 * time.Second) // the daemon reads what it has been told
	var took, cpu time.Duration
	for b.Loop() {
		begin, used := time.Now(), cpuOf(b, p.cmd.Process.Pid)
		time.Sleep(time.Minute)
		took, cpu = took+time.Since(begin), cpu+cpuOf(b, p.cmd.Process.Pid)-used
	}
	b.ReportMetric(100*cpu.Seconds()/took.Seconds(), "daemon-%-of-a-core")
	b.ReportMetric(float64(h.memory(p, "VmRSS"))/1e6, "daemon-MB")
	b.ReportMetric(float64(h.memory(p, "RssAnon")-alone)/(holders*connecting), "daemon-B/socket")
	asked := time.Now()
	status := h.status(p) // not before: it takes memory
	b.ReportMetric(time.Since(asked).Seconds(), "s-for-a-status")
	b.ReportMetric(float64(len(status.Sockets)), "sockets-the-daemon-knows")
	b.ReportMetric(float64(status.Counters["samples_dropped"]), "samples-dropped")
	b.ReportMetric(float64(without)/sockets, "kernel-B/socket-without")
	b.ReportMetric(float64(with)/sockets, "kernel-B/socket-plait")
	b.ReportMetric(0, "ns/op")
	down := time.Now()
	_, err := p.Stop(b.Context())
	h.must(err)
	b.ReportMetric(time.Since(down).Seconds(), "s-to-go-down")
	if sent := h.end(all); sent < int(took.Seconds())*rate*9/10 {
		b.Errorf("%d bursts in %v: the machine does not send %d a second", sent, took, rate)
	}
}

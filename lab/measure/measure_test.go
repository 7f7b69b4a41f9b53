package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/netns"
	"plait.dev/plait/lab/result"
)

func TestRound(t *testing.T) {
	for v, want := range map[float64]float64{0: 0, 0.1 + 0.2: 0.3, 1234567: 1234570, -0.00012345678: -0.000123457, 30: 30} {
		if got := round(v); got != want {
			t.Errorf("round(%v) = %v, want %v", v, got, want)
		}
	}
}

func TestSeries(t *testing.T) {
	c := Config{Every: 100 * time.Millisecond}
	s := c.series("a.b", "ms", "x -> y", 3, []float64{1.23456789})
	if s.StartS != 0.3 || s.StepS != 0.1 || !slices.Equal(s.Values, []float64{1.23457}) || s.Label != "x -> y" {
		t.Errorf("series = %+v", s)
	}
	c.Every = time.Millisecond
	if s := c.series("a.b", "ms", "", 1234567, nil); s.StartS != 1234.567 {
		t.Errorf("a series that begins with interval 1234567 of a millisecond begins at %v s", s.StartS)
	}
}

// TestProbeOfNothing: a variant in which only pings run has nothing to probe, and is no failure for that.
func TestProbeOfNothing(t *testing.T) {
	r, err := Start(t.Context(), Config{Every: time.Second, Origin: time.Now(), Measure: experiment.Measure{Probe: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Stop(); err != nil {
		t.Error(err)
	}
}

// threeNodes makes a sender with the links "a" and "b" to a router, and from there the link "c" of 20 Mbit/s, with a queue
// of 45420 bytes, to a receiver. Node n of a link has the address 2001:db8:<link>::n, and the sender announces the
// one on b over MPTCP.
func threeNodes(t *testing.T) (sender, router, receiver string) {
	t.Helper()
	var nodes [3]string
	for i := range nodes {
		nodes[i] = fmt.Sprintf("plait-measure-%d-%d", os.Getpid(), i)
		ip(t, "netns add "+nodes[i])
		t.Cleanup(func() { ip(t, "netns del "+nodes[i]) })
		// Link-local addresses that are checked for duplicates would cost the first SYNs.
		run(t, "ip", "netns exec "+nodes[i]+" sysctl -q net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.dad_transmits=0")
	}
	sender, router, receiver = nodes[0], nodes[1], nodes[2]
	for link, ends := range map[string][2]string{"a": {sender, router}, "b": {sender, router}, "c": {router, receiver}} {
		ip(t, fmt.Sprintf("-n %s link add name %s type veth peer name %s netns %s", ends[0], link, link, ends[1]))
		for i, node := range ends {
			ip(t, fmt.Sprintf("-n %s addr add 2001:db8:%s::%d/64 dev %s nodad", node, link, i+1, link))
			// One packet is one segment, as in the lab.
			ip(t, fmt.Sprintf("-n %s link set dev %s gso_max_segs 1 up", node, link))
		}
	}
	ip(t, "-n "+receiver+" -6 route add default via 2001:db8:c::1")
	ip(t, "-n "+sender+" -6 route add default via 2001:db8:a::2")
	ip(t, "-n "+sender+" -6 route add default via 2001:db8:b::2 table 200")
	ip(t, "-n "+sender+" -6 rule add from 2001:db8:b::1 lookup 200")
	run(t, "tc", "-n "+router+" qdisc add dev c root tbf rate 20mbit burst 3028 limit 45420")
	ip(t, "-n "+receiver+" mptcp limits set subflow 1 add_addr_accepted 1")
	ip(t, "-n "+sender+" mptcp limits set subflow 1")
	ip(t, "-n "+sender+" mptcp endpoint add 2001:db8:b::1 dev b signal")
	return sender, router, receiver
}

func ip(t *testing.T, arguments string) { t.Helper(); run(t, "ip", arguments) }

func run(t *testing.T, program, arguments string) {
	t.Helper()
	if out, err := exec.Command(program, strings.Fields(arguments)...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", program, arguments, err, out)
	}
}

// mountTracefs gives the tracing directory, mounted for this test if it is not already.
func mountTracefs(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(tracefs, "events")); err == nil {
		return tracefs
	}
	if err := unix.Mount("tracefs", tracefs, "tracefs", 0, ""); err != nil {
		t.Skipf("needs tracefs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(tracefs, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return tracefs
}

// serve sends size bytes to everyone who connects to the sender's port, over MPTCP if the client can.
func serve(t *testing.T, sender string, port uint16, size int64) {
	t.Helper()
	var listen net.ListenConfig
	listen.SetMultipathTCP(true)
	err := netns.Do(sender, func() error {
		listener, err := listen.Listen(t.Context(), "tcp", fmt.Sprintf("[::]:%d", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = io.CopyN(c, zeros{}, size) // the receiver counts
				c.Close()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// receive reads size bytes from the address; halfway it calls between.
func receive(t *testing.T, receiver, address string, multipath bool, size int64, between func()) {
	t.Helper()
	var dial net.Dialer
	dial.SetMultipathTCP(multipath)
	var conn net.Conn
	if err := netns.Do(receiver, func() (err error) {
		conn, err = dial.DialContext(t.Context(), "tcp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n, err := io.CopyN(io.Discard, conn, size/2)
	if err == nil {
		between()
		var rest int64
		rest, err = io.Copy(io.Discard, conn)
		n += rest
	}
	if n != size || err != nil {
		t.Fatalf("received %d bytes of %d: %v", n, size, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestLive records a transfer over two subflows with drops and compares what the collectors say with each other.
func TestLive(t *testing.T) {
	rung.Netns(t)
	dir := mountTracefs(t)
	sender, router, receiver := threeNodes(t)
	// No other program of the machine uses this port: tracepoints do not tell namespaces apart.
	const port, size = 23571, 3 << 20
	for i, address := range []string{"[2001:db8:a::1]", "[2001:db8:b::1]"} { // resolves the neighbours, which may cost a SYN
		serve(t, sender, uint16(port+1+i), 1000)
		receive(t, receiver, fmt.Sprintf("%s:%d", address, port+1+i), false, 1000, func() {})
	}
	serve(t, sender, port, size)
	prefix := netip.MustParsePrefix("2001:db8:d::/48")
	cfg := Config{
		Every: 50 * time.Millisecond, Origin: time.Now(), Nodes: []string{sender, receiver},
		Apps:    []App{{Name: "bulk", FromNS: sender, Port: port, MPTCP: true}},
		Measure: experiment.Measure{Sockets: true, Links: true, Probe: true, Routes: []string{sender}},
		Prefix:  map[string]netip.Prefix{sender: prefix},
		Events:  []RouteEvent{{At: 0, Kind: Announce}},
	}
	for link, ends := range map[string][2]string{"a": {sender, router}, "b": {sender, router}, "c": {router, receiver}} {
		cfg.Links = append(cfg.Links, Link{link, "forward", Counter{NS: ends[0], Dev: link, QueueDev: link}}, Link{link, "backward", Counter{NS: ends[1], Dev: link}})
	}
	if p, err := openProbe(dir, cfg); errors.Is(err, errNoEventProbes) {
		cfg.Measure.Probe = false
	} else if err := errors.Join(err, p.close()); err != nil {
		t.Fatal(err)
	}
	r, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	receive(t, receiver, fmt.Sprintf("[2001:db8:a::1]:%d", port), true, size, func() {
		if n, err := r.Subflows("bulk"); n != 2 || err != nil {
			t.Errorf("%d subflows, want 2; %v", n, err)
		}
		ip(t, "-n "+sender+" -6 route add 2001:db8:d::/48 via 2001:db8:a::2 table 101")
		ip(t, "-n "+sender+" -6 route add 2001:db8:d::/48 via 2001:db8:a::2")
		ip(t, "-n "+sender+" -6 route del 2001:db8:d::/48 via 2001:db8:a::2")
	})
	out, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	checkSockets(t, out, size)
	checkLinks(t, out, size)
	m, n := out.Metrics["bulk"], out.Metrics[sender]
	all := n["segments_retransmitted"] + out.Metrics[receiver]["segments_retransmitted"]
	if all == 0 {
		t.Error("no segment was sent again")
	}
	if cfg.Measure.Probe {
		checkProbe(t, m, n, all)
	}
	if n["segments_sent"] < size/1440 {
		t.Errorf("segments_sent = %v for %d bytes", n["segments_sent"], size)
	}
	if n["route_changes"] != 3 || n["hole_ms"] <= 0 || !(n["announce_epe_ms"] > 0 && n["announce_epe_ms"] < n["announce_best_ms"]) {
		t.Errorf("routes: %v, marks %v", n, out.Marks)
	}
}

// checkProbe compares what the tracepoints say with the counters of the sender and all segments sent again.
func checkProbe(t *testing.T, m, n map[string]float64, all float64) {
	t.Helper()
	if m["fast_retransmits"]+m["timeout_retransmits"]+m["probe_retransmits"] != all || m["fast_retransmits"] != n["fast_retransmits"] {
		t.Errorf("tracepoints %v and counters %v differ, of %v segments sent again", m, n, all)
	}
	if m["dup_acks"] < n["sack_recoveries"] || m["dup_acks"] > n["segments_sent"] {
		t.Errorf("%v duplicate ACKs in %v recoveries of %v segments", m["dup_acks"], n["sack_recoveries"], n["segments_sent"])
	}
}

func find(t *testing.T, out *Outcome, name string) result.Series {
	t.Helper()
	i := slices.IndexFunc(out.Series, func(s result.Series) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no series %s", name)
	}
	return out.Series[i]
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// checkSockets compares goodput with the bytes delivered: each subflow has data, and together they have all of it but
// what went after the last sample.
func checkSockets(t *testing.T, out *Outcome, size float64) {
	t.Helper()
	if out.Metrics["bulk"]["subflows"] != 2 {
		t.Errorf("subflows = %v, want 2", out.Metrics["bulk"]["subflows"])
	}
	var delivered float64
	for k, label := range []string{"2001:db8:a::1 -> 2001:db8:c::2", "2001:db8:b::1 -> 2001:db8:c::2"} {
		name := fmt.Sprintf("bulk/%d", k+1)
		s := find(t, out, name+".goodput_mbps")
		if s.Label != label {
			t.Errorf("%s is %q, want %q", name, s.Label, label)
		}
		bytes := out.Metrics[name]["delivered_bytes"]
		if got := sum(s.Values) * 1e6 / 8 * s.StepS; got < 0.7*bytes || got > 1.4*bytes { // a busy host samples late
			t.Errorf("%s: series sum to %.0f bytes, %.0f were delivered", name, got, bytes)
		}
		if slices.Max(find(t, out, name+".inflight_packets").Values) < 2 || slices.Max(find(t, out, name+".cwnd_packets").Values) < 10 ||
			slices.Max(find(t, out, name+".srtt_ms").Values) <= 0 || slices.Max(find(t, out, name+".ssthresh_packets").Values) <= 0 {
			t.Errorf("%s: states are not plausible", name)
		}
		delivered += bytes
	}
	if delivered < 0.7*size || delivered > 1.2*size {
		t.Errorf("%.0f bytes delivered of %.0f", delivered, size)
	}
}

// checkLinks compares the link counters with each other, with the rate of c and its queue's limit of 30 full packets.
func checkLinks(t *testing.T, out *Outcome, size float64) {
	t.Helper()
	a, b, c := out.Metrics["a"], out.Metrics["b"], out.Metrics["c"]
	if got, want := c["forward_packets"]+c["forward_drops"], a["forward_packets"]+b["forward_packets"]; got < want-20 || got > want+20 {
		t.Errorf("%v packets went through c or were dropped, %v entered", got, want) // neighbour discovery differs
	}
	if a["forward_bytes"] < size/10 || b["forward_bytes"] < size/10 || c["forward_bytes"] < size || c["forward_bytes"] > 1.2*size {
		t.Errorf("bytes forward: a %v, b %v, c %v", a["forward_bytes"], b["forward_bytes"], c["forward_bytes"])
	}
	if c["forward_drops"] == 0 || c["backward_bytes"] <= 0 || c["backward_bytes"] > c["forward_bytes"]/5 {
		t.Errorf("link c: %v", c)
	}
	highest := slices.Max(find(t, out, "c.forward_queue_packets").Values)
	if highest < 15 || highest > 45 || highest != c["forward_queue_max_packets"] {
		t.Errorf("queue of at most %v packets, metric %v", highest, c["forward_queue_max_packets"])
	}
	rates := slices.Sorted(slices.Values(find(t, out, "c.forward_mbps").Values))
	fastest, most := rates[len(rates)-1], rates[len(rates)*9/10] // a busy host samples late now and then
	if fastest < 15 || most > 80 {
		t.Errorf("%v Mbit/s on a link of 20", rates)
	}
}

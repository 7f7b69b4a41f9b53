package daemon

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// What connections send arrives in the record, each byte once, with exit and network; what is over before it begins does not.
func TestRecord(t *testing.T) {
	h := newNamespace(t)
	peer := h.tunnel(srv6, "mtu 1500")
	f := h.watches("net0", flow4.from.Addr(), flow6.from.Addr())
	var pairs []pair
	for i, flow := range []packet{flow4, flow6, flow6} {
		h.multipath = i == 2
		c, err := h.connectTo(flow.from.Addr().String(), 0, peer, "")
		h.must(err)
		defer c.close()
		h.must(transfer(c, 1<<20))
		h.eventually(20*time.Second, "everything is acknowledged", func() bool { s, _ := f.stats(endsOfServer(c)); return s.AckedBytes >= 1<<20 && s.Acked == s.Next })
		pairs = append(pairs, c)
	}
	network := netip.MustParsePrefix("2001:db8:c::/48")
	var out bytes.Buffer
	r := recorder{flows: f, out: csv.NewWriter(&out), where: func(e mptcp.Ends) (string, netip.Prefix) {
		if e.Remote.Addr() == flow6.to.Addr() {
			return "transit-a", network
		}
		return "", netip.Prefix{}
	}}
	begin := time.Now()
	did, err := r.read(begin)
	h.must(err)
	if len(did) > 0 {
		t.Errorf("before the beginning: %+v", did)
	}
	before := r.last
	ctx, stop := context.WithCancel(t.Context())
	recorded := make(chan error, 1)
	go func() { recorded <- r.run(ctx, func() error { return nil }, 0) }()
	const sent = 300_000
	for range 3 {
		for _, c := range pairs {
			h.must(transfer(c, sent/3))
		}
		time.Sleep(2 * recordEvery)
	}
	for _, c := range pairs {
		h.eventually(20*time.Second, "everything is acknowledged", func() bool { s, _ := f.stats(endsOfServer(c)); return s.AckedBytes >= 1<<20+sent && s.Acked == s.Next })
	}
	stop()
	if err := <-recorded; !errors.Is(err, context.Canceled) {
		t.Errorf("the recorder ends with %v", err)
	}
	did, err = r.read(time.Now()) // what was left
	h.must(err)
	h.must(r.write(did))
	lines, err := csv.NewReader(&out).ReadAll()
	h.must(err)
	if len(lines) < 1+len(pairs) || !slices.Equal(lines[0], recordColumns) {
		t.Fatalf("%d lines, the first is %v", len(lines), lines[0])
	}
	column := func(line []string, name string) string { return line[slices.Index(recordColumns, name)] }
	number := func(line []string, name string) float64 {
		n, err := strconv.ParseFloat(column(line, name), 64)
		h.must(err)
		return n
	}
	for i, c := range pairs {
		ends, acked := endsOfServer(c), 0.0
		for _, line := range lines[1:] {
			if column(line, "client_port") != strconv.Itoa(int(ends.Remote.Port())) || column(line, "client") != ends.Remote.Addr().Unmap().String() {
				continue
			}
			acked += number(line, "acked_bytes")
			if interval := number(line, "interval_s"); interval <= 0 || interval > time.Since(begin).Seconds() {
				t.Errorf("an interval of %v s", interval)
			}
			if column(line, "local") != ends.Local.Addr().Unmap().String() || number(line, "srtt_us") == 0 || number(line, "sent_segments") == 0 && number(line, "acked_bytes") == 0 {
				t.Errorf("%v", line)
			}
			if exit, prefix := column(line, "exit"), column(line, "prefix"); i == 0 && exit+prefix != "" || i > 0 && (exit != "transit-a" || prefix != network.String()) {
				t.Errorf("%v leaves by %q to %q", ends, exit, prefix)
			}
			if token := column(line, "mptcp_token"); (len(token) == 8) != (i == 2) {
				t.Errorf("%v: token %q", ends, token)
			}
		}
		// When an acknowledgement of the connection is late, MPTCP repeats what a subflow had sent, which counts as well.
		key := flowKey(ends)
		if missing := float64(r.last[key].AckedBytes-before[key].AckedBytes) - acked; acked < sent || acked > sent && i < 2 || missing != 0 {
			t.Errorf("%v: %v bytes acknowledged of %v, and %v that are in no line", ends, acked, sent, missing)
		}
	}
	h.must(f.Close())
	if _, err := r.read(time.Now()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// The record over the control socket: whole lines until the client goes, and an error if plait goes first.
func TestEgressFlows(t *testing.T) {
	h := newNamespace(t)
	f := loadPrograms(h)
	x := &exits{flows: f, plan: emptyPlan(t)}
	socket := filepath.Join(t.TempDir(), "control")
	ctx, stop := context.WithCancel(t.Context())
	l, err := listen(socket)
	h.must(err)
	questions := http.NewServeMux()
	x.questions(questions)
	served := make(chan error, 1)
	go func() { served <- serve(ctx, l, questions, 0) }()
	var out strings.Builder
	h.must(Client(socket).EgressFlows(t.Context(), 0.3, &out))
	header := strings.Join(recordColumns, ",") + "\n"
	if out.String() != header {
		t.Errorf("got %q, want the header alone", out.String())
	}
	if err := Client(socket).EgressFlows(t.Context(), -1, &out); err == nil || !strings.Contains(err.Error(), "seconds -1: expected a number above 0") {
		t.Errorf("-1 seconds: %v", err)
	}
	patience, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	out.Reset()
	if err := Client(socket).EgressFlows(patience, 0, &out); err != nil || out.String() != header {
		t.Errorf("the client goes: %v, %q", err, out.String())
	}
	time.AfterFunc(500*time.Millisecond, stop)
	if err := Client(socket).EgressFlows(t.Context(), 0, &out); err == nil {
		t.Error("plait goes: want an error")
	}
	h.must(<-served)
	if err := Client(socket).EgressFlows(t.Context(), 0, &out); !errors.Is(err, ErrNotRunning) {
		t.Errorf("nobody there: %v", err)
	}
}

func emptyPlan(t *testing.T) *egress.Plan {
	t.Helper()
	p, err := egress.NewPlan(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What plait top is told: by exit, by network, by flow, the busiest first.
func TestEgressTraffic(t *testing.T) {
	x := &exits{config: Egress{Exits: []egress.Exit{{Name: "a"}, {Name: "b"}}}, traffic: egress.NewTraffic[bpf.FlowKey](), networks: egress.NewNetworks()}
	at, client := time.Unix(0, 0), netip.MustParseAddr("2001:db8:c::7")
	key := func(port uint16) bpf.FlowKey {
		return bpf.FlowKey{Local: netip.MustParseAddr("192.0.2.1").As16(), LocalPort: 443, Remote: client.As16(), RemotePort: port}
	}
	x.traffic.Look(map[bpf.FlowKey]egress.FlowCount{}, at)
	flows := map[bpf.FlowKey]egress.FlowCount{key(9999): {Exit: "", Client: client, AckedBytes: 1e6, SentSegments: 700, Resent: 7, SRTTUs: 50_000}}
	for port := range uint16(200) {
		flows[key(port)] = egress.FlowCount{Exit: "a", Client: client, AckedBytes: uint64(port) * 1000, SentSegments: 1000}
	}
	x.traffic.Look(flows, at.Add(2*time.Second))
	did, passed := x.traffic.Did()
	network := netip.MustParsePrefix("2001:db8:c::/48")
	x.networks.Look(func(yield func(egress.FlowCount) bool) {
		for _, f := range did {
			if !yield(f) {
				return
			}
		}
	}, func(netip.Addr) netip.Prefix { return network }, passed)
	got := x.now()
	if got.Seconds != 2 || got.Active != 201 || len(got.Flows) != busiest || len(got.Exits) != 3 || len(got.Networks) != 2 {
		t.Fatalf("%v s, %d of %d flows, exits %+v, networks %+v", got.Seconds, len(got.Flows), got.Active, got.Exits, got.Networks)
	}
	first := FlowStatus{netip.MustParseAddrPort("192.0.2.1:443"), netip.AddrPortFrom(client, 9999), "", 4, 50, 700, 7}
	if got.Flows[0] != first || got.Flows[1].Client.Port() != 199 {
		t.Errorf("flows begin with %+v, want %+v and that of port 199", got.Flows[:2], first)
	}
	if n := got.Networks[0]; n.Prefix != network || n.Exit != "a" || n.Flows != 200 {
		t.Errorf("the busiest network is %+v", n)
	}
	if e := got.Exits; e[0].Exit != "a" || e[0].AckedBytes != 19_900_000 || e[1] != (NamedTraffic{Exit: "b"}) || e[2].Exit != "" || e[2].LossPercent != 1 {
		t.Errorf("exits: %+v", e)
	}
}

// watchers is how many programs see the packets of the interface, both directions together.
func (s *contentServer) watchers() (n int) {
	s.in(func() error {
		device, err := net.InterfaceByName("e0")
		if err != nil {
			return nil
		}
		for _, direction := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			q, err := link.QueryPrograms(link.QueryOptions{Target: device.Index, Attach: direction})
			if err != nil {
				return err
			}
			n += len(q.Programs)
		}
		return nil
	})
	return n
}

// An interface that is made anew while plait is up is watched again, by a daemon that has given up most of its rights.
func TestEgressInterfaceAnew(t *testing.T) {
	s := newContentServer(t)
	p := s.tells(On)
	if n := s.watchers(); n != 2 {
		t.Fatalf("%d programs see the packets, want 2", n)
	}
	s.ip("-n " + s.ns + " link del e0")
	s.eventually(20*time.Second, "plait says so", func() bool {
		log, err := p.EgressLog()
		s.must(err)
		return len(log) > 0 && slices.ContainsFunc(log, func(e JournalEntry) bool {
			return e.Text == "flows are not measured, and failures of exits are left to BGP: there is no interface e0"
		})
	})
	s.ip("-n " + s.ns + " link add e0 type veth peer name e1")
	s.eventually(20*time.Second, "two programs see the packets", func() bool { return s.watchers() == 2 })
	for _, end := range []string{"e0", "e1"} {
		s.ip("-n " + s.ns + " link set " + end + " up")
	}
	s.ip("-n " + s.ns + " addr add " + serverAddress + "/128 dev e0 nodad")
	s.eventually(20*time.Second, "the way to a next hop is missing", func() bool {
		log, err := p.EgressLog()
		s.must(err)
		return slices.ContainsFunc(log, func(e JournalEntry) bool { return strings.Contains(e.Text, "find the way to next hop "+hopAddress) })
	})
	_, err := p.Stop(t.Context())
	s.must(err)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the plait that went down: %v: %s", err, p.said.String())
	}
	if n := s.watchers(); n != 0 {
		t.Errorf("%d programs are left", n)
	}
}

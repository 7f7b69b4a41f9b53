package daemon

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"plait.dev/plait/ackpath"
	"plait.dev/plait/bpf"
	"plait.dev/plait/egress/mptcp"
)

// fakeAcks is a kernel that keeps what it is told.
type fakeAcks struct {
	routes      map[bpf.FlowKey]bpf.AckRoute
	names       map[bpf.AckName]bpf.FlowKey
	leads       map[bpf.FlowKey]bpf.AckLead
	sent, heard map[int]bool
	told        int         // how often, what is to be heard
	full        error       // of copying another flow's ACKs
	stuck       bpf.FlowKey // copying this one's ACKs cannot be ended
}

func newFakeAcks() *fakeAcks {
	return &fakeAcks{routes: map[bpf.FlowKey]bpf.AckRoute{}, names: map[bpf.AckName]bpf.FlowKey{}, leads: map[bpf.FlowKey]bpf.AckLead{}}
}

func (k *fakeAcks) copyTo(flow bpf.FlowKey, to bpf.AckRoute) error {
	if k.full != nil {
		return k.full
	}
	k.routes[flow] = to
	return nil
}

func (k *fakeAcks) copies(flow bpf.FlowKey) uint64 { return k.routes[flow].Copies }
func (k *fakeAcks) watchSent(i map[int]bool) error { k.sent = i; return nil }
func (k *fakeAcks) Close() error                   { return nil }

func (k *fakeAcks) watchHeard(i map[int]bool) error {
	k.heard, k.told = i, k.told+1
	if i[5] {
		return errors.New("no such interface")
	}
	return nil
}

func (k *fakeAcks) stopCopying(flow bpf.FlowKey) error {
	if flow == k.stuck {
		return errors.New("stuck")
	}
	delete(k.routes, flow)
	return nil
}

func (k *fakeAcks) take(n ackpath.Name, from netip.Addr, flow bpf.FlowKey) error {
	k.names[bpfName(n, from)], k.leads[flow] = flow, bpf.AckLead{}
	return nil
}

func (k *fakeAcks) drop(n ackpath.Name, from netip.Addr, flow bpf.FlowKey) error {
	delete(k.names, bpfName(n, from))
	delete(k.leads, flow)
	return nil
}

func (k *fakeAcks) lead(flow bpf.FlowKey) (bpf.AckLead, error) {
	l, ok := k.leads[flow]
	if !ok {
		return l, errors.New("none")
	}
	return l, nil
}

// said keeps a log.
type said struct{ strings.Builder }

func (s *said) logf(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

// subflow is one of connection 7 here, 9 at the other end.
func subflow(local, remote string, id uint8, congestion string) mptcp.Flow {
	return mptcp.Flow{Subflow: mptcp.Subflow{Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote), LocalID: id},
		Token: 7, RemoteToken: 9, RemoteID: id, Congestion: congestion}
}

// A sender takes copies for a flow it has, of which one of the connection's addresses asks, whose socket is plait's, and of which there is one; and drops it.
func TestAckSender(t *testing.T) {
	k, log := newFakeAcks(), &said{}
	s := newAckSender(k, true, log.logf)
	flows := []mptcp.Flow{
		subflow("192.0.2.1:443", "198.51.100.7:5000", 0, "plait"),
		subflow("[::ffff:192.0.2.1]:443", "[::ffff:203.0.113.7]:5001", 1, "cubic"),
		subflow("192.0.2.1:443", "203.0.113.7:5002", 2, "plait"), subflow("192.0.2.1:444", "203.0.113.7:5003", 2, "plait"),
	}
	flows = append(flows, subflow("192.0.2.97:443", "198.51.100.7:5004", 0, "plait")) // to an address that was announced
	flows[4].LocalID = 97
	searches := 0
	s.list = func() ([]mptcp.Flow, error) { searches++; return flows, nil }
	s.find = func(mptcp.Flow) (ackLink, error) { return ackLink{index: 4}, nil }
	now := time.Unix(1000, 0)
	quick, other, stranger := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.8")
	ask := func(from netip.Addr, names ...ackpath.Name) ackpath.Answer {
		t.Helper()
		now = now.Add(time.Second)
		question := ackpath.Hello{Nonce: 5, Flows: names}.Append(nil)
		b := s.answer(now, from, 3, question)
		s.watch()
		a, err := ackpath.ParseAnswer(b)
		if err != nil || len(b) > len(question) || a.Nonce != 5 || !a.Fair {
			t.Fatalf("answer %+v, %v, of %d bytes to %d", a, err, len(b), len(question))
		}
		return a
	}
	name := func(id uint8) ackpath.Name { return ackpath.Name{Token: 7, ID: id, SenderID: id} }
	for _, c := range []struct {
		from netip.Addr
		name ackpath.Name
		want ackpath.State
	}{
		{quick, name(0), ackpath.Known}, {quick, name(1), ackpath.Unmanaged}, {quick, name(2), ackpath.Ambiguous}, {quick, name(3), ackpath.Unknown},
		{quick, ackpath.Name{Token: 8}, ackpath.Unknown}, {stranger, name(0), ackpath.Unknown},
	} {
		if a := ask(c.from, c.name); a.Flows[0].State != c.want {
			t.Errorf("%v asks about %+v: %v, want %v", c.from, c.name, a.Flows[0].State, c.want)
		}
	}
	key := flowKey(flows[0].Ends())
	if len(k.names) != 1 || k.names[bpfName(name(0), quick)] != key || !maps.Equal(k.heard, map[int]bool{3: true, 4: true}) {
		t.Errorf("the kernel has %v at interfaces %v, want the first flow at those of its hellos and its ACKs", k.names, k.heard)
	}
	for i, used := range []uint64{1, 2, 2, 2, 2, 3} { // a second each: nothing is measured after the first
		k.leads[key] = bpf.AckLead{Copies: 10 + uint64(i), Used: used, Late: 2, Leads: 4, LeadUs: 90_000}
		want := ackpath.Told{Name: name(0), State: ackpath.Known, Copies: 10 + uint32(i), Late: 2, LeadUs: 90_000}
		if 2 <= i && i <= 4 {
			want.State = ackpath.Resting
		}
		if time.Duration(i)*time.Second > leadFor {
			want.LeadUs = 0
		}
		if got := ask(quick, name(0)).Flows[0]; got != want {
			t.Errorf("told %+v, want %+v", got, want)
		}
	}
	var status AckpathStatus
	s.status(&status, now)
	if len(status.Taken) != 1 || status.Taken[0].Copies != 15 || status.Taken[0].LeadMs != 0 {
		t.Errorf("status %+v, want no lead of long ago", status.Taken)
	}
	for range 3 { // hellos that were in the queue of the link that was left
		if a, b := ask(other, name(0)), ask(quick, name(0)); a.Flows[0].State != ackpath.Unasked || b.Flows[0].State == ackpath.Unasked || len(k.names) != 1 || k.names[bpfName(name(0), quick)] != key {
			t.Errorf("hellos by turns from two addresses of the connection: %v and %v, copies are taken as %v", a.Flows[0].State, b.Flows[0].State, k.names)
		}
	}
	ask(other, name(0))
	if a := ask(other, name(0)); a.Flows[0].State != ackpath.Known || len(k.names) != 1 || k.names[bpfName(name(0), other)] != key {
		t.Errorf("hellos from another address of the connection: %v, copies are taken as %v", a.Flows[0].State, k.names)
	}
	flows[0].Token, flows[1].Token = 8, 8 // another connection, before the first one's hellos are missed
	now = now.Add(reviewEvery)
	ask(other, ackpath.Name{Token: 8})
	if _, err := k.lead(key); err != nil || len(s.taken) != 1 {
		t.Errorf("a connection that has the ports of another: %v, taken are %v", err, s.taken)
	}
	before := searches
	for range 10 {
		s.answer(now, quick, 3, ackpath.Hello{Flows: []ackpath.Name{name(3)}}.Append(nil))
	}
	if searches > before+1 {
		t.Errorf("%d searches of all sockets at one moment", searches-before)
	}
	flows[0].Congestion = "cubic" // given back
	now = now.Add(reviewEvery)
	if a := ask(other, ackpath.Name{Token: 8}); a.Flows[0].State != ackpath.Unmanaged || len(k.names) != 0 || len(k.heard) != 0 {
		t.Errorf("a socket that was given back: %v, the kernel has %v at %v", a.Flows[0].State, k.names, k.heard)
	}
	if !strings.Contains(log.String(), "are taken no more, after 15") {
		t.Errorf("the log is %q", log.String())
	}
}

// One source is not answered more often than it may, others are; what is no hello is not answered at all.
func TestAckSenderRate(t *testing.T) {
	s := newAckSender(newFakeAcks(), true, (&said{}).logf)
	now := time.Unix(1000, 0)
	hello := ackpath.Hello{Nonce: 5}.Append(nil)
	answered := func(from string) bool { return s.answer(now, netip.MustParseAddr(from), 3, hello) != nil }
	n := 0
	for i := range 10 * hellosPerSecond {
		if answered(fmt.Sprintf("2001:db8::%x", i)) {
			n++
		}
	}
	if n != hellosPerSecond || !answered("2001:db8:0:1::1") || !answered("192.0.2.1") {
		t.Errorf("%d hellos of one /64 answered at a moment, want %d, and others still", n, hellosPerSecond)
	}
	for i := range 2 * sourcesMost {
		answered(fmt.Sprintf("10.0.%d.%d", i>>8, i&255))
	}
	if len(s.sources) > sourcesMost {
		t.Errorf("%d sources are remembered, want at most %d", len(s.sources), sourcesMost)
	}
	now = now.Add(2 * time.Second)
	if !answered("192.0.2.99") {
		t.Error("a new source is not answered when the others are quiet")
	}
	if s.answer(now, netip.MustParseAddr("192.0.2.1"), 3, []byte("hello")) != nil {
		t.Error("what is no hello was answered")
	}
}

// loopbackWay answers hellos on loopback, as a sender with so many ways.
type loopbackWay struct {
	*net.UDPConn
	state ackpath.State
	fair  bool
}

// ackRig is a receiver with two links, whose sender answers on loopback; the slow link's round trip is what the policy is told.
func newAckRig(t *testing.T) (r *ackReceiver, k *fakeAcks, sender *loopbackWay, flows *[]mptcp.Flow, log *said) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	sender = &loopbackWay{c, ackpath.Known, true}
	k, log = newFakeAcks(), &said{}
	r = newAckReceiver(k, c.LocalAddr().(*net.UDPAddr).AddrPort().Port(), log.logf)
	flows = &[]mptcp.Flow{subflow("10.0.0.1:1000", "127.0.0.1:443", 0, "cubic"), subflow("10.0.1.1:1001", "127.0.0.1:443", 1, "cubic")}
	r.list = func() ([]mptcp.Flow, error) { return slices.Clone(*flows), nil }
	r.find = func(f mptcp.Flow) (ackLink, error) {
		a := f.Ends().Local.Addr()
		i := int(a.As4()[2]) + 2
		return ackLink{i, fmt.Sprint("link", i), a, netip.MustParseAddr("10.0.0.254")}, nil
	}
	r.open = func(ackLink) (*net.UDPConn, error) {
		return net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	}
	r.set(On, ackpath.DefaultRatio)
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	return r, k, sender, flows, log
}

// reply answers one hello of each socket that asked, the slow link's after a while, and waits until the receiver has heard it.
func (s *loopbackWay) reply(t *testing.T, r *ackReceiver, hellos int) (asked []ackpath.Name) {
	t.Helper()
	b := make([]byte, 2048)
	for range hellos {
		_ = s.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, from, err := s.ReadFromUDPAddrPort(b)
		if err != nil {
			t.Fatal(err)
		}
		h, err := ackpath.ParseHello(b[:n])
		if err != nil {
			t.Fatal(err)
		}
		a := ackpath.Answer{Nonce: h.Nonce, Fair: s.fair}
		for _, n := range h.Flows {
			a.Flows = append(a.Flows, ackpath.Told{Name: n, State: s.state})
		}
		asked = append(asked, h.Flows...)
		r.mu.Lock()
		var way *ackWay
		for k, c := range r.sockets {
			if c.LocalAddr().(*net.UDPAddr).AddrPort() == from {
				way = r.ways[wayKey{k, netip.MustParseAddr("127.0.0.1")}]
			}
		}
		if way.link.index == 2 { // as if the hello had left long ago
			way.Way = ackpath.Way{}
			way.Ask(time.Now().Add(-3 * time.Second))
			way.Asked(time.Now().Add(-3*time.Second), h.Nonce)
		}
		before := way.Way
		r.mu.Unlock()
		if _, err := s.WriteToUDPAddrPort(a.Append(nil), from); err != nil {
			t.Fatal(err)
		}
		for heard := false; !heard; time.Sleep(time.Millisecond) {
			r.mu.Lock()
			heard = before.Silent(time.Now()).IsZero() && fmt.Sprint(before) != fmt.Sprint(way.Way)
			r.mu.Unlock()
		}
	}
	return asked
}

// From the first hello to the last copy.
func TestAckReceiver(t *testing.T) {
	r, k, sender, flows, log := newAckRig(t)
	(*flows)[0].RemoteID = 97
	r.look(time.Now())
	if asked := sender.reply(t, r, 2); len(asked) != 0 {
		t.Errorf("asked about %v before a round trip is known", asked)
	}
	r.look(time.Now())
	slow := ackpath.Name{Token: 9, ID: 0, SenderID: 97}
	if asked := sender.reply(t, r, 2); !slices.Equal(asked, []ackpath.Name{slow}) || len(k.routes) != 0 {
		t.Errorf("asked about %v, want the slow subflow alone; copied are %v, want none before the sender agrees", asked, k.routes)
	}
	r.look(time.Now())
	key := flowKey((*flows)[0].Ends())
	want := bpf.AckRoute{Source: netip.MustParseAddr("10.0.1.1").As16(), Destination: netip.MustParseAddr("127.0.0.1").As16(), NextHop: netip.MustParseAddr("10.0.0.254").As16(),
		Ifindex: 3, Slow: 2, Token: 9, SenderId: 97, DestinationPort: r.port, SourcePort: k.routes[key].SourcePort}
	if len(k.routes) != 1 || k.routes[key] != want || want.SourcePort == 0 || !maps.Equal(k.sent, map[int]bool{2: true}) {
		t.Fatalf("copied are %+v at interfaces %v, want %+v at 2", k.routes, k.sent, want)
	}
	var s AckpathStatus
	r.status(&s, time.Now())
	if len(s.Flows) != 2 || s.Flows[0].Over != "link3" || s.Flows[0].Copied.IsZero() || !s.Flows[1].Copied.IsZero() || !strings.Contains(s.Flows[1].Because, "less than") {
		t.Errorf("status %+v", s.Flows)
	}
	want.Copies = 1000
	k.routes[key] = want
	r.set(Observe, ackpath.DefaultRatio)
	r.look(time.Now())
	if len(k.routes)+len(k.sent) != 0 {
		t.Errorf("in mode observe copied are %v", k.routes)
	}
	s = AckpathStatus{}
	r.status(&s, time.Now())
	if s.Flows[0].Because != "the mode is observe" {
		t.Errorf("copies have ended because %q", s.Flows[0].Because)
	}
	r.look(time.Now())
	s = AckpathStatus{}
	r.status(&s, time.Now())
	if !strings.HasSuffix(s.Flows[0].Because, "would be copied, if the sender takes copies of this subflow") {
		t.Errorf("in mode observe it is said %q", s.Flows[0].Because)
	}
	r.set(On, ackpath.DefaultRatio)
	r.look(time.Now())
	if len(k.routes) != 0 {
		t.Errorf("mode on came back: copied are %v before the sender agrees again", k.routes)
	}
	for i := 0; i < 4 && len(k.routes) == 0; i++ { // one of the hellos may be due on the other link
		sender.reply(t, r, 1)
		r.look(time.Now())
	}
	if len(k.routes) != 1 {
		t.Error("not copied after mode on came back")
	}
	s = AckpathStatus{}
	r.status(&s, time.Now())
	if s.Copies != 1000 || s.Flows[0].Copies != 1000 {
		t.Errorf("%d copies in all, of the flow %d, want the 1000 of before", s.Copies, s.Flows[0].Copies)
	}
	*flows = (*flows)[:1]
	r.look(time.Now())
	if len(k.routes)+len(k.sent) != 0 || !strings.HasSuffix(log.String(), "the connection has no other link\n") {
		t.Errorf("when a single subflow is left, copied are %v; the log is %q", k.routes, log.String())
	}
}

// Connections that receive nothing, or whose subflows leave by one link, are left alone: not a hello.
func TestAckReceiverLeavesAlone(t *testing.T) {
	for name, change := range map[string]func([]mptcp.Flow){
		"quiet": func(f []mptcp.Flow) { f[0].Quiet, f[1].Quiet = idleAfter, idleAfter },
		"one link": func(f []mptcp.Flow) {
			f[1].Local = netip.MustParseAddrPort("10.0.0.2:1001")
		},
		"two connections": func(f []mptcp.Flow) { f[1].Token = 8 },
	} {
		r, _, _, flows, _ := newAckRig(t)
		change(*flows)
		r.look(time.Now())
		if len(r.flows) > 0 || len(r.sockets) > 0 {
			t.Errorf("%s: %d flows and %d sockets", name, len(r.flows), len(r.sockets))
		}
	}
}

func TestAckpathExplain(t *testing.T) {
	at := netip.MustParseAddrPort
	s := AckpathStatus{
		Flows: []AckFlowStatus{{Token: 1, Local: at("10.0.0.1:1"), Remote: at("192.0.2.1:443")}, {Token: 1, Local: at("10.0.1.1:2"), Remote: at("192.0.2.2:443")},
			{Token: 2, Local: at("10.0.0.1:3"), Remote: at("192.0.2.9:443")},
			{Local: at("10.0.0.1:443"), Remote: at("203.0.113.1:4")}, {Local: at("10.0.1.1:443"), Remote: at("203.0.113.2:5")}}, // of two clients
		Ways:  []AckWayStatus{{Server: netip.MustParseAddr("192.0.2.1")}, {Server: netip.MustParseAddr("192.0.2.2")}, {Server: netip.MustParseAddr("192.0.2.9")}},
		Taken: []TakenStatus{{Local: at("192.0.2.7:443"), Remote: at("198.51.100.1:5")}},
	}
	for of, want := range map[string][3]int{"192.0.2.1": {2, 2, 0}, "10.0.0.1:3": {1, 1, 0}, "192.0.2.2:443-10.0.1.1:2": {2, 2, 0}, "198.51.100.1": {0, 0, 1}, "203.0.113.2": {1, 0, 0}} {
		copied := s
		copied.Flows, copied.Ways, copied.Taken = slices.Clone(s.Flows), slices.Clone(s.Ways), slices.Clone(s.Taken)
		e, err := copied.explain(of)
		if got := [3]int{len(e.Flows), len(e.Ways), len(e.Taken)}; err != nil || got != want {
			t.Errorf("explain %s: %v flows, ways, taken, %v; want %v", of, got, err, want)
		}
	}
	if _, err := s.explain("nobody"); err == nil || !strings.Contains(err.Error(), "expected the address") {
		t.Errorf("explain nobody: %v", err)
	}
}

func TestAckpathMetrics(t *testing.T) {
	s := AckpathStatus{Copies: 7, TakenCopies: 5, LateCopies: 2, Ignored: 3, Flows: []AckFlowStatus{{Copied: time.Unix(1, 0)}, {}, {}}, Taken: []TakenStatus{{}}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(acksCollector{func() AckpathStatus { return s }})
	want := `
# HELP plait_ackpath_copies_total Copies of ACKs: sent; taken, as a sender; late, those of the taken that were there after their twin. A reload that turns the lever off begins anew.
# TYPE plait_ackpath_copies_total counter
plait_ackpath_copies_total{kind="late"} 2
plait_ackpath_copies_total{kind="sent"} 7
plait_ackpath_copies_total{kind="taken"} 5
# HELP plait_ackpath_flows MPTCP subflows: copied, whose ACKs this host copies over a quicker link; native, of connections with several links, whose it does not; taken, that this host takes copies for.
# TYPE plait_ackpath_flows gauge
plait_ackpath_flows{state="copied"} 1
plait_ackpath_flows{state="native"} 2
plait_ackpath_flows{state="taken"} 1
# HELP plait_ackpath_ignored_total Datagrams on the port of hellos that were none, or too many of one source.
# TYPE plait_ackpath_ignored_total counter
plait_ackpath_ignored_total 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// What is said in the section, and what is refused of it.
func TestAckpathConfig(t *testing.T) {
	inDirectory(t, "ackpath: {mode: on, ratio: 2, port: 4000, answer: off}\n")
	c, err := ReadConfig("plait.yaml")
	if want := (Ackpath{Mode: On, Ratio: 2, Port: 4000, Answer: Off}); err != nil || c.Ackpath != want || c.answers() {
		t.Errorf("got %+v, %v, answers %v; want %+v", c.Ackpath, err, c.answers(), want)
	}
	if c := DefaultConfig(); !c.answers() || c.Ackpath.Mode != Off {
		t.Errorf("by default %+v, answers %v; want a host that answers and copies nothing", c.Ackpath, c.answers())
	}
	if c, err = c.Override(Overrides{Observe: true}); err != nil || c.Ackpath.Mode != Observe || c.answers() {
		t.Errorf("with --observe: %+v, %v, answers %v", c.Ackpath, err, c.answers())
	}
	for text, want := range map[string]string{
		"ackpath: {mode: maybe}": "plait.yaml:1:17: mode: maybe: expected off, observe or on",
		"ackpath: {ratio: 0.5}":  "plait.yaml:1:18: ratio: 0.5: expected a number from 1 to 100, the slow link's round trip over the quick one's",
		"ackpath: {port: 0}":     "plait.yaml:1:17: port: 0: expected a number from 1 to 65535",
		"ackpath: {answer: 1}":   "plait.yaml:1:19: answer: 1: expected off or on",
	} {
		inDirectory(t, text)
		if _, err := ReadConfig("plait.yaml"); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// Where the port is taken, for one family or the other, why copies are not taken is told until the configuration says so.
func TestAckSenderPortTaken(t *testing.T) {
	for _, family := range []string{"udp4", "udp6"} {
		taken, err := net.ListenUDP(family, &net.UDPAddr{})
		if errors.Is(err, syscall.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		a := &acks{kernel: newFakeAcks(), port: taken.LocalAddr().(*net.UDPAddr).AddrPort().Port()}
		a.out, a.ration = io.Discard, newRation("")
		c := DefaultConfig()
		a.configure(c)
		if s := a.status(); s.Answers || !strings.Contains(s.Silent, "address already in use") || !strings.HasSuffix(s.Silent, "plait reload") {
			t.Errorf("on a port of %s that is taken: answers %v, %q", family, s.Answers, s.Silent)
		}
		c.Ackpath.Answer = Off
		a.configure(c)
		if s := a.status(); s.Answers || s.Silent != "" {
			t.Errorf("with answer off: answers %v, because %q; want no such reason", s.Answers, s.Silent)
		}
		c.Ackpath.Answer = On
		taken.Close()
		a.configure(c)
		if s := a.status(); !s.Answers || s.Silent != "" {
			t.Errorf("on a free port: answers %v, %q", s.Answers, s.Silent)
		}
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}
}

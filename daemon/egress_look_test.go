package daemon

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/bgp"
	"plait.dev/plait/egress/mptcp"
)

// crowdClient is one of 2^32.
func crowdClient(i int) netip.Addr {
	a := chooser.As16()
	binary.BigEndian.PutUint32(a[12:], uint32(i))
	return netip.AddrFrom16(a)
}

// crowdOfFlows are three flows of each client, one through each exit, that have brought so many parts of 50 KB, after which data waits.
func crowdOfFlows(clients int, parts uint64) map[bpf.FlowKey]egress.FlowCount {
	flows := make(map[bpf.FlowKey]egress.FlowCount, 3*clients)
	for i := range clients {
		client := crowdClient(i)
		for exit := range 3 {
			flows[bpf.FlowKey{Remote: client.As16(), LocalPort: uint16(exit)}] = egress.FlowCount{Exit: "abc"[exit : exit+1], Moved: exit > 0, Client: client, AckedBytes: 50_000 * parts, SentSegments: uint32(36 * parts), Resent: uint32(parts / 4), SRTTUs: 20_000, Waits: true}
		}
	}
	return flows
}

// reacting is how long a connection's event takes, one after the other, until stop is closed. Nothing else is measured: a decision waits for what the lever's other work holds.
func (x *exits) reacting(clients int, stop <-chan struct{}) (took []time.Duration) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			slices.Sort(took)
			return took
		case <-time.After(500 * time.Microsecond):
		}
		client := crowdClient(i * 7919 % clients)
		began := time.Now()
		x.reachable(mptcp.Peer{Token: uint32(i), Client: client, Own: netip.MustParseAddrPort("[2001:db8:1::10]:80")})
		x.joined(client, netip.MustParseAddr("2001:db8:1::b"))
		took = append(took, time.Since(began))
	}
}

// carryMany has the plan know a tenth of a full table by one exit, a reflector that is not there, and ten thousand prefixes whose connections are compared.
func (x *exits) carryMany(b *testing.B) {
	b.Helper()
	x.memory = b.TempDir() + "/memory.json"
	var told []egress.Update
	for i := range fullTable / 10 {
		key := egress.Key{Reflector: netip.MustParseAddr("192.0.2.9"), Distinguisher: "b", Prefix: nth(i)}
		told = append(told, egress.Update{Key: key, Route: &egress.Route{SID: x.config.Exits[1].Locators[0].Addr(), RouteTargets: []string{x.config.Exits[1].RouteTarget}, NextHop: netip.MustParseAddr("2001:db8:1::1")}})
	}
	x.plan.Apply(told)
	long := time.Now().Add(-time.Minute)
	for i := range 10_000 {
		x.worth.Join(uint32(i), false)
		x.worth.Transfer(uint32(i), nth(i), egress.Throughput, 1<<20, 1e6, long)
	}
	x.worth.Tick(time.Now())
	ctx, stop := context.WithCancel(b.Context())
	var err error
	if x.speaker, err = bgp.Start(ctx, bgp.Config{AS: 65000, RouterID: netip.MustParseAddr("192.0.2.1"), Reflectors: []bgp.Reflector{{Address: netip.MustParseAddr("127.0.0.1")}}, Log: slog.New(slog.DiscardHandler)}, func(bgp.Event) {}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stop(); x.speaker.Wait() })
}

// How long a connection's event takes that comes while the flows of 20,000 busy clients, one through each of three exits, are looked at, and while nothing else is done. What the machine's other
// work adds is in both.
func BenchmarkEventsBesideLooks(b *testing.B) {
	const clients = 20_000
	x := choosing(b, Service{egress.Throughput, 5})
	x.carryMany(b)
	for i := range trialsAtOnce { // as many as there may be, so that none begins
		x.trials[netip.AddrFrom4([4]byte{byte(i)})] = ""
	}
	during := func(do func()) []time.Duration {
		stop, took := make(chan struct{}), make(chan []time.Duration)
		go func() { took <- x.reacting(clients, stop) }()
		do()
		close(stop)
		return <-took
	}
	var looks, busy, quiet []time.Duration
	now := time.Unix(1e9, 0)
	for parts := uint64(1); b.Loop(); parts++ {
		flows := crowdOfFlows(clients, parts)
		now = now.Add(time.Second)
		busy = append(busy, during(func() {
			began := time.Now()
			x.learn(flows, x.places(), now)
			x.reconsider(b.Context(), now)
			looks = append(looks, time.Since(began))
			began = time.Now()
			x.now()
			x.status()
			x.keep()
			looks = append(looks, time.Since(began))
		})...)
		quiet = append(quiet, during(func() { time.Sleep(200 * time.Millisecond) })...)
	}
	for name, took := range map[string][]time.Duration{"look": looks, "event": busy, "quiet": quiet} {
		slices.Sort(took)
		for part, at := range map[string]int{"median": len(took) / 2, "99%": len(took) * 99 / 100, "longest": len(took) - 1} {
			b.ReportMetric(float64(took[at].Microseconds()), fmt.Sprintf("%s-%s-us", name, part))
		}
	}
}

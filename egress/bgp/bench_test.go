package bgp

import (
	"bufio"
	"context"
	"encoding/binary"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"plait.dev/plait/egress"
)

// A full IPv6 table through four exits, as one reflector tells it: 1 million VPN routes with transposed SIDs, 4 prefixes for
// each set of attributes. What is measured goes from the first byte to the last event; the receiver counts and keeps a route for
// each key, or only counts.
func BenchmarkFullTable(b *testing.B) {
	const prefixes, exits, perUpdate = 250_000, 4, 4
	dump := fullTable(b, prefixes, exits, perUpdate)
	for _, c := range []struct {
		name string
		keep bool
	}{{"speaker", false}, {"speaker and receiver", true}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				routes := map[egress.Key]*egress.Route{}
				updates, calls := 0, 0
				done := make(chan struct{})
				r := newReflector(b, "127.0.0.1:0")
				ctx, cancel := context.WithCancel(context.Background())
				speaker, err := Start(ctx, config(r), func(e Event) {
					switch e := e.(type) {
					case Routes:
						calls++
						updates += len(e.Updates)
						for _, u := range e.Updates {
							if c.keep {
								routes[u.Key] = u.Route
							}
						}
					case EndOfRIB:
						close(done)
					}
				})
				must(b, err)
				r.greet()
				began := time.Now()
				w := bufio.NewWriterSize(r.conn, 1<<16)
				_, err = w.Write(dump)
				must(b, err)
				must(b, w.Flush())
				<-done
				took := time.Since(began)
				runtime.GC()
				runtime.ReadMemStats(&after)
				if updates != prefixes*exits {
					b.Fatalf("got %d updates", updates)
				}
				b.ReportMetric(took.Seconds(), "s/table")
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB-live")
				b.ReportMetric(float64(after.Sys)/1e6, "MB-process")
				b.ReportMetric(float64(calls), "calls")
				runtime.KeepAlive(routes)
				cancel()
				speaker.Wait()
			}
		})
	}
}

// The same told to gobgp's server, whose events are counted: what plait would cost if it were built on it. A policy keeps the
// routes out of its main table, so that it holds them once.
func BenchmarkGobgpServer(b *testing.B) {
	const prefixes, exits, perUpdate = 250_000, 4, 4
	dump := fullTable(b, prefixes, exits, perUpdate)
	ctx := context.Background()
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := newReflector(b, "127.0.0.1:0")
		s := server.NewBgpServer()
		go s.Serve()
		must(b, s.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: testAS, RouterId: hostID.String(), ListenPort: -1}}))
		must(b, s.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
			Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT}}))
		var updates atomic.Int64
		done := make(chan struct{})
		watching, stop := context.WithCancel(ctx)
		must(b, s.WatchEvent(watching, server.WatchEventMessageCallbacks{
			OnPathUpdate: func(paths []*apiutil.Path, _ time.Time) { updates.Add(int64(len(paths))) },
			OnPathEor:    func(*apiutil.Path, time.Time) { close(done) },
		}, server.WatchUpdate(false, "", ""), server.WatchEor(false)))
		must(b, s.AddPeer(ctx, &api.AddPeerRequest{Peer: &api.Peer{
			Conf:      &api.PeerConf{NeighborAddress: "127.0.0.1", PeerAsn: testAS},
			Transport: &api.Transport{RemotePort: uint32(netip.MustParseAddrPort(r.listener.Addr().String()).Port())},
			AfiSafis: []*api.AfiSafi{{
				Config:   &api.AfiSafiConfig{Family: &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_MPLS_VPN}, Enabled: true},
				AddPaths: &api.AddPaths{Config: &api.AddPathsConfig{Receive: true}},
			}},
		}}))
		r.greet()
		began := time.Now()
		_, err := r.conn.Write(dump)
		must(b, err)
		<-done
		took := time.Since(began)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if updates.Load() != prefixes*exits {
			b.Fatalf("got %d updates", updates.Load())
		}
		b.ReportMetric(took.Seconds(), "s/table")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB-live")
		b.ReportMetric(float64(after.Sys)/1e6, "MB-process")
		stop()
		s.Stop()
	}
}

// fullTable returns the bytes of the UPDATEs, and the end of RIB.
func fullTable(b *testing.B, prefixes, exits, perUpdate int) []byte {
	var dump []byte
	list := make([]string, perUpdate)
	for exit := range exits {
		name := "65000:1" + string(rune('0'+exit))
		for i := 0; i < prefixes; i += perUpdate {
			for k := range list {
				var addr [16]byte
				addr[0], addr[1] = 0x20, 0x01
				binary.BigEndian.PutUint32(addr[2:], uint32(i+k))
				list[k] = netip.PrefixFrom(netip.AddrFrom16(addr), 48).String()
			}
			a := vpn(list...)
			a.rd, a.targets, a.labels = name, []string{name}, []uint32{16 * uint32(exit+1)}
			a.asPath = []uint32{64496 + uint32(exit), uint32(i%7000) + 1, uint32(i) + 100_000}
			dump = append(dump, encode(b, a.message(b), true)...)
		}
	}
	return append(dump, encode(b, wire.NewEndOfRib(wire.RF_IPv6_VPN), false)...)
}

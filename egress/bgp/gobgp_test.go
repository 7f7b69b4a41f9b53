package bgp

import (
	"context"
	"io"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// gobgp is a route reflector of another make, on a port of 127.0.0.1.
type gobgp struct {
	t      *testing.T
	server *server.BgpServer
	at     netip.AddrPort
}

// startGobgp starts a reflector of this AS that takes the speaker for a client in this AS. One that has restarted says that it
// kept its forwarding state, and tells nothing before it has heard that the speaker is through with its routes.
func startGobgp(t *testing.T, as, clientAS uint32, restarted bool) *gobgp {
	t.Helper()
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	at := netip.MustParseAddrPort(probe.Addr().String())
	must(t, probe.Close())
	g := &gobgp{t: t, server: server.NewBgpServer(), at: at}
	go g.server.Serve()
	ctx := context.Background()
	must(t, g.server.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: as, RouterId: reflectorID.String(), ListenPort: int32(at.Port()), ListenAddresses: []string{"127.0.0.1"},
	}}))
	peer := &api.Peer{
		Conf:            &api.PeerConf{NeighborAddress: "127.0.0.1", PeerAsn: clientAS},
		Transport:       &api.Transport{PassiveMode: true},
		GracefulRestart: &api.GracefulRestart{Enabled: true, RestartTime: 60, NotificationEnabled: true, LocalRestarting: restarted, DeferralTime: 360},
	}
	if as == clientAS {
		peer.RouteReflector = &api.RouteReflector{RouteReflectorClient: true, RouteReflectorClusterId: "10.0.0.1"}
	}
	for _, f := range wireFamilies {
		peer.AfiSafis = append(peer.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: &api.Family{Afi: api.Family_Afi(f.Afi()), Safi: api.Family_Safi(f.Safi())}, Enabled: true},
			AddPaths:          &api.AddPaths{Config: &api.AddPathsConfig{SendMax: 4}},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
		})
	}
	must(t, g.server.AddPeer(ctx, &api.AddPeerRequest{Peer: peer}))
	t.Cleanup(g.server.Stop)
	return g
}

// path is a route as gobgp takes it.
func (g *gobgp) path(a announcement) []*apiutil.Path {
	g.t.Helper()
	var out []*apiutil.Path
	for _, nlri := range a.nlri(g.t) {
		one := a
		one.prefixes = a.prefixes[:1]
		var attrs []wire.PathAttributeInterface
		for _, attr := range one.message(g.t).Body.(*wire.BGPUpdate).PathAttributes {
			if reach, ok := attr.(*wire.PathAttributeMpReachNLRI); ok {
				reach.Value = []wire.PathNLRI{nlri}
			}
			attrs = append(attrs, attr)
		}
		out = append(out, &apiutil.Path{Family: wireFamilies[a.family], Nlri: nlri.NLRI, Attrs: attrs})
	}
	return out
}

func (g *gobgp) announce(list ...announcement) {
	g.t.Helper()
	for _, a := range list {
		answers, err := g.server.AddPath(apiutil.AddPathRequest{Paths: g.path(a)})
		must(g.t, err)
		for _, answer := range answers {
			must(g.t, answer.Error)
		}
	}
}

// relay stands between speaker and reflector, so that a test can cut the connection and put another reflector in place.
type relay struct {
	listener net.Listener
	mu       sync.Mutex
	to       netip.AddrPort
	conns    []net.Conn
}

func startRelay(t *testing.T, to netip.AddrPort) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{listener: listener, to: to}
	t.Cleanup(func() {
		_ = listener.Close()
		r.cut(netip.AddrPort{})
	})
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			to, err := net.Dial("tcp", r.to.String())
			if err != nil {
				_ = from.Close()
			} else {
				r.conns = append(r.conns, from, to)
				go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
				go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			}
			r.mu.Unlock()
		}
	}()
	return r
}

func (r *relay) cut(to netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns, r.to = nil, to
}

func speakerTo(at netip.AddrPort) Config {
	return Config{AS: testAS, RouterID: hostID, Reflectors: []Reflector{{Address: at.Addr(), Port: at.Port(), RetryTime: 50 * time.Millisecond}}}
}

func TestGobgp(t *testing.T) {
	t.Parallel()
	g := startGobgp(t, testAS, testAS, false)
	whole := vpn("2001:db8:d::/48")
	whole.rd, whole.targets, whole.labels = "65000:12", []string{"65000:12"}, []uint32{implicitNull}
	whole.sid = sidInfo("2001:db8:f2:9::", wire.END_DT46, wire.NewSRv6SIDStructureSubSubTLV(32, 16, 16, 0, 0, 0))
	four := vpn("192.0.2.0/24")
	four.family, four.sid.EndpointBehavior = VPNv4, uint16(wire.END_DT46)
	bare := vpn("2001:db8:e::/48")
	bare.sid = nil
	g.announce(vpn("2001:db8:c::/48"), whole, four, bare, unicastRoute("2001:db8:c::/48"))
	hop4 := unicastRoute("198.51.100.0/24")
	hop4.nextHop = netip.MustParseAddr("192.0.2.11")
	g.announce(hop4)
	w := watch(t, speakerTo(g.at))
	for f := range Family(families) {
		w.event("end of "+f.String(), 1)
	}
	w.has("192.0.2.0/24", "198.51.100.0/24", "2001:db8:c::/48", "2001:db8:c::/48", "2001:db8:d::/48")
	want := map[string]string{ // SID of each VPN route
		"65000:11 2001:db8:c::/48": "2001:db8:f1:1::", "65000:12 2001:db8:d::/48": "2001:db8:f2:9::", "65000:11 192.0.2.0/24": "2001:db8:f1:1::",
	}
	got := map[string]string{}
	w.mu.Lock()
	for k, r := range w.routes {
		if k.Distinguisher != "" {
			got[k.Distinguisher+" "+k.Prefix.String()] = r.SID.String()
		}
		if !reflect.DeepEqual(r.ASPath, hop4.asPath) && !reflect.DeepEqual(r.ASPath, whole.asPath) || r.LocalPref != 200 || r.RouterID != reflectorID {
			t.Errorf("route %+v: %+v", k, *r)
		}
	}
	w.mu.Unlock()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s := w.speaker.Sessions()[0]
	if s.Prefixes != [families]int{1, 1, 1, 2} || len(s.Refused) != 1 || s.Refused[0].Last != "2001:db8:e::/48 of 65000:11" {
		t.Errorf("session %+v", s)
	}
	for _, words := range []string{"families: IPv4 unicast, IPv6 unicast, VPNv4, VPNv6", "ADD-PATH receive: IPv4 unicast", "graceful restart, 1m0s: IPv4 unicast", "extended messages"} {
		if all := strings.Join(s.Agreed, "; "); !strings.Contains(all, words) {
			t.Errorf("agreed on %s: no %q", all, words)
		}
	}
	must(t, g.server.DeletePath(apiutil.DeletePathRequest{Paths: g.path(vpn("2001:db8:c::/48"))}))
	w.has("192.0.2.0/24", "198.51.100.0/24", "2001:db8:c::/48", "2001:db8:d::/48")
	// Nothing has come to the reflector.
	for _, f := range wireFamilies {
		must(t, g.server.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_ADJ_IN, Name: "127.0.0.1", Family: f},
			func(prefix wire.NLRI, _ []*apiutil.Path) { t.Errorf("the reflector has heard of %s", prefix) }))
	}
}

// The connection breaks; the reflector that takes over knows one route less.
func TestGobgpRestarts(t *testing.T) {
	t.Parallel()
	first, second := startGobgp(t, testAS, testAS, false), startGobgp(t, testAS, testAS, true)
	first.announce(vpn("2001:db8:c::/48", "2001:db8:d::/48"))
	second.announce(vpn("2001:db8:d::/48"))
	r := startRelay(t, first.at)
	w := watch(t, speakerTo(netip.MustParseAddrPort(r.listener.Addr().String())))
	w.event("end of VPNv6", 1)
	w.has("2001:db8:c::/48", "2001:db8:d::/48")
	r.cut(second.at)
	w.event("down", 1)
	if w.down.Kept != 2 {
		t.Errorf("kept %d routes, want 2: %s", w.down.Kept, w.down.Reason)
	}
	w.event("end of VPNv6", 2)
	noLater(t, w, VPNv6)
	w.has("2001:db8:d::/48")
	w.mu.Lock()
	defer w.mu.Unlock()
	if !reflect.DeepEqual(w.gone, []string{"2001:db8:c::/48"}) {
		t.Errorf("withdrawn were %v, want only what the second does not know", w.gone)
	}
}

// Each side in words about the other's AS.
func TestGobgpOtherAS(t *testing.T) {
	t.Parallel()
	g := startGobgp(t, 65001, testAS, false)
	w := watch(t, speakerTo(g.at))
	w.until("words about the AS", func() bool {
		return strings.Contains(w.lastError(), "the reflector is in AS 65001") || strings.Contains(w.lastError(), "it expects this host in another AS")
	})
	g = startGobgp(t, testAS, 65001, false)
	w = watch(t, speakerTo(g.at))
	w.until("words about the AS", func() bool { return strings.Contains(w.lastError(), "it expects this host in another AS") })
}

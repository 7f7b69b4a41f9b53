package render

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plait.dev/plait/egress"
	"plait.dev/plait/internal/rung"
)

var update = flag.Bool("update", false, "write testdata")

func addresses(text ...string) (out []netip.Addr) {
	for _, t := range text {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func prefixes(text ...string) (out []netip.Prefix) {
	for _, t := range text {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// labNetwork is the one of the lab's EPE experiments (lab/topo/testdata/epe.golden), whose own configuration of FRR is seen to work there.
func labNetwork() Network {
	address := netip.MustParseAddr
	border := func(name, routerID, own, locator, exit, link, peer string, as, preference uint32) BorderRouter {
		return BorderRouter{Name: name, RouterID: address(routerID), Address: address(own), Locator: netip.MustParsePrefix(locator), Interface: "csp",
			Peers: []Peer{{Exit: exit, Interface: link, AS: as, Addresses: addresses(peer), LocalPreference: preference}}}
	}
	return Network{
		AS: 65000,
		Exits: []egress.Exit{
			{Name: "a", RouteTarget: "65000:11", Locators: prefixes("2001:db8:f1::/48"), Addresses: addresses("2001:db8:1::e1"), Table: 101},
			{Name: "b", RouteTarget: "65000:12", Locators: prefixes("2001:db8:f2::/48"), Addresses: addresses("2001:db8:1::e2"), Table: 102},
		},
		Announce:   prefixes("2001:db8:1::/64"),
		Servers:    prefixes("2001:db8:1::/64"),
		Reflectors: []Reflector{{Name: "rr", RouterID: address("10.255.0.2"), Address: address("2001:db8:1::2")}},
		BorderRouters: []BorderRouter{
			border("as1", "10.255.0.3", "2001:db8:1::3", "2001:db8:f1::/48", "a", "a", "2001:db8:2::2", 64496, 200),
			border("as2", "10.255.0.4", "2001:db8:1::4", "2001:db8:f2::/48", "b", "b", "2001:db8:3::2", 64497, 100),
		},
	}
}

// fullNetwork has everything there is.
func fullNetwork() Network {
	address := netip.MustParseAddr
	return Network{
		AS: 4200000000,
		Exits: []egress.Exit{
			{Name: "transit a", RouteTarget: "65000:11", Locators: prefixes("2001:db8:f000::/36"), Addresses: addresses("2001:db8:1::a", "198.51.100.1"), Table: 11200},
			{Name: "transit b", RouteTarget: "65000:12", Locators: prefixes("2001:db8:f000::/36"), Addresses: addresses("2001:db8:1::b"), Table: 11201},
		},
		Announce: prefixes("2001:db8::/32", "198.51.100.0/24", "2001:db8:1:2::3/128"),
		Servers:  prefixes("2001:db8:1::/48", "2001:db8:2::/48"),
		Reflectors: []Reflector{
			{Name: "rr1", RouterID: address("192.0.2.1"), Address: address("2001:db8:1::1"), Password: "secret"},
			{Name: "reflector-2", Address: address("2001:db8:1::2")},
		},
		BorderRouters: []BorderRouter{{Name: "as1", RouterID: address("192.0.2.11"), Address: address("2001:db8:1::11"), Locator: netip.MustParsePrefix("2001:db8:f123::/48"), Interface: "bond0.10",
			Gateways: addresses("2001:db8:1::fe", "192.0.2.254"), Peers: []Peer{
				{Exit: "transit b", Interface: "eth2", AS: 64497, Addresses: addresses("2001:db8:ffff::2"), Announce: prefixes("2001:db8:b::/48")},
				{Exit: "transit a", Interface: "eth1", AS: 64496, Addresses: addresses("2001:db8:fffe::2", "203.0.113.2"), Announce: prefixes("203.0.113.128/25"), LocalPreference: 200, MaxPrefixes: 1000000, Password: "peer"},
			}}},
	}
}

// What is rendered is looked at when it changes.
func TestGolden(t *testing.T) {
	for name, n := range map[string]Network{"lab": labNetwork(), "full": fullNetwork()} {
		for _, r := range n.Routers() {
			for file, text := range map[string]string{"frr.conf": r.FRR, "kernel.sh": r.Kernel} {
				path := filepath.Join("testdata", name+"-"+r.Name+"-"+file)
				if text == "" {
					continue
				}
				if *update {
					if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if want, err := os.ReadFile(path); err != nil || string(want) != text {
					t.Errorf("%s: %v; got\n%s\nrenew it with: go test ./egress/render -update", path, err, text)
				}
			}
		}
	}
}

// No peer is believed about the SIDs of exits, which need not be in what is announced, nor about routers: the packets of other exits would come to it. Nor can it give its routes the route target
// of another exit, which FRR would keep beside its own.
func TestPeersAreNotBelieved(t *testing.T) {
	n := labNetwork()
	n.Reflectors[0].Address = netip.MustParseAddr("2001:db8:99::2")
	n.Exits = append(n.Exits, egress.Exit{Name: "c", SIDs: addresses("2001:db8:f3::1")})
	for _, r := range n.Routers()[:2] {
		for _, inside := range []string{"2001:db8:1::/64 le 128", "2001:db8:f1::/48 le 128", "2001:db8:f2::/48 le 128", "2001:db8:f3::1/128", "2001:db8:99::2/128"} {
			if !slices.ContainsFunc(lines(r.FRR), func(line string) bool {
				return strings.HasPrefix(line, "ipv6 prefix-list plait-inside-6 ") && strings.HasSuffix(line, " permit "+inside)
			}) {
				t.Errorf("router %s: its peer is believed about %s", r.Name, inside)
			}
		}
		_, from, _ := strings.Cut(r.FRR, "route-map plait-from-")
		_, from, _ = strings.Cut(from, " permit 20\n")
		if !strings.HasPrefix(from, " set extcommunity none\n") {
			t.Errorf("router %s: its peer's route targets are kept: %.60q", r.Name, from)
		}
	}
}

// A server is believed about no router and no SID, wherever those are; an exit's locator that holds addresses of the network does not keep answers to them out.
func TestServersAreNotBelieved(t *testing.T) {
	n := fullNetwork()
	var reflector string
	for _, r := range n.Routers() {
		if r.Kernel == "" {
			reflector = r.FRR
		}
	}
	_, deny, _ := strings.Cut(reflector, "route-map plait-from-servers-6 ")
	if !strings.HasPrefix(deny, "deny 5\n match ipv6 address prefix-list plait-routers-6\n") {
		t.Errorf("first is not what is denied: %.80q", deny)
	}
	for _, inside := range []string{"2001:db8:f000::/36 le 128", "2001:db8:1::1/128", "2001:db8:1::2/128", "2001:db8:1::11/128"} {
		if !slices.ContainsFunc(lines(reflector), func(line string) bool {
			return strings.HasPrefix(line, "ipv6 prefix-list plait-routers-6 ") && strings.HasSuffix(line, " permit "+inside)
		}) {
			t.Errorf("servers are believed about %s", inside)
		}
	}
	n.Exits[0].Locators = prefixes("2001:db8::/32")
	if got, want := n.Guarded(), prefixes("2001:db8:f123::/48"); !slices.Equal(got, want) {
		t.Errorf("nothing from an exit goes to %v, want %v", got, want)
	}
}

// FRR's own parser takes every line. FRR is in the lab's machine.
func TestFRRParses(t *testing.T) {
	rung.VM(t)
	script := ""
	for name, n := range map[string]Network{"lab": labNetwork(), "full": fullNetwork()} {
		for _, r := range n.Routers() {
			// FRR 8.4 ends with status 0 whatever it read
			script += fmt.Sprintf("echo %s, router %s: >&2\ncat > /tmp/frr.conf <<'END'\n%sEND\nvtysh -C -f /tmp/frr.conf > /tmp/said 2>&1 && ! grep '^%% ' /tmp/said || { cat /tmp/said >&2; exit 1; }\n", name, r.Name, r.FRR)
		}
	}
	file := filepath.Join(t.TempDir(), "frr-parses.yaml")
	err := os.WriteFile(file, []byte(`name: frr-parses
group: test
question: Does FRR take every line?
links:
  line: {ends: [router, neighbour], rate_mbps: 10, delay_ms: 1, queue_packets: 10}
nodes:
  router:
    run:
      - |
        `+strings.ReplaceAll(script, "\n", "\n        ")+`
apps:
  probe: {type: ping, from: router, to: neighbour, gap_ms: 1, count: 1}
bounds:
  - {expect: probe.lost_percent == 0, because: the routers' texts were read before}
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "run", "../../cmd/plait", "lab", "run", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out[max(0, len(out)-500):]) // all texts are before what FRR says
	}
}

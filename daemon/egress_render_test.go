package daemon

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const networkText = `egress:
  mode: off
  as: 65000
  router_id: 192.0.2.10
  address: 2001:db8:1::10
  interface: eth0
  announce: [2001:db8:1::/48, 198.51.100.0/24]
  servers: 2001:db8:1::/64
  reflectors:
    - {address: "2001:db8:1::2", name: rr, router_id: 192.0.2.2, password_file: PASSWORD}
    - {address: "2001:db8:1::3"}
  exits:
    - {name: a, route_target: "65000:11", locators: 2001:db8:f000::/40, addresses: [2001:db8:1::a, 198.51.100.1]}
    - {name: b, route_target: "65000:12", locators: 2001:db8:f000::/40, addresses: 2001:db8:1::b}
  border_routers:
    - name: as1
      router_id: 192.0.2.11
      address: 2001:db8:1::11
      locator: 2001:db8:f001::/48
      interface: eth0
      gateways: 2001:db8:1::fe
      exits:
        - {name: a, interface: eth1, as: 64496, addresses: [2001:db8:fffe::2, 203.0.113.2], local_preference: 200, max_prefixes: 1000, password_file: PASSWORD}
        - {name: b, interface: eth2, as: 64497, addresses: 2001:db8:ffff::2}
`

// files puts a path where a password's is wanted; nothing reads it.
func files(text string) string { return strings.ReplaceAll(text, "PASSWORD", "/etc/plait/rr") }

// What a line of the configuration asks for is in the text of the router it is for.
func TestRender(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inDirectory(t, strings.ReplaceAll(networkText, "PASSWORD", password))
	c, err := ReadConfig("plait.yaml")
	if err != nil {
		t.Fatal(err)
	}
	routers, err := c.Egress.Render()
	if err != nil {
		t.Fatal(err)
	}
	if len(routers) != 2 || routers[0].Name != "as1" || routers[1].Name != "rr" || !routers[0].Secret || !routers[1].Secret || routers[1].Kernel != "" {
		t.Fatalf("got %+v, want the border router and the one reflector with a router_id", routers)
	}
	for i, lines := range [][]string{
		{"neighbor 2001:db8:1::2 password secret", "neighbor 2001:db8:1::3 description reflector-2", "neighbor 203.0.113.2 password secret", "maximum-prefix 1000",
			"set local-preference 200", "prefix 2001:db8:f001::/48", "rt vpn export 65000:12", "rd vpn export 192.0.2.11:1", "nexthop vpn export 2001:db8:1::11"},
		{"neighbor plait-servers password secret", "bgp listen range 2001:db8:1::/64 peer-group plait-servers", "neighbor 2001:db8:1::11 route-reflector-client"},
	} {
		for _, l := range lines {
			if !strings.Contains(routers[i].FRR, " "+l) {
				t.Errorf("%s: no %q in\n%s", routers[i].Name, l, routers[i].FRR)
			}
		}
	}
	if want := "route 6 11200 2001:db8:1::/48 via 2001:db8:1::fe\n"; !strings.Contains(routers[0].Kernel, want) {
		t.Errorf("no %q in\n%s", want, routers[0].Kernel)
	}
	for _, wrong := range []string{"two words", "last blank ", "g\u00e4ste", "\ttab"} {
		if err := os.WriteFile(password, []byte(wrong+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Egress.Render(); err == nil || !strings.Contains(err.Error(), "password for reflector 2001:db8:1::2: "+password+": FRR takes") {
			t.Errorf("password %q: %v", wrong, err)
		}
	}
	if err := os.Remove(password); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Egress.Render(); err == nil || !strings.Contains(err.Error(), "read the password for reflector 2001:db8:1::2") {
		t.Errorf("without the file of a password: %v", err)
	}
}

// Whoever puts the examples of both pages into one file has a network that can be rendered.
func TestExamplesOfPages(t *testing.T) {
	section := func(page string) map[string]any {
		text, err := os.ReadFile(filepath.Join("../docs/egress", page))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "```yaml\n")
		example, _, _ := strings.Cut(rest, "```")
		var c map[string]map[string]any
		if err := yaml.Unmarshal([]byte(example), &c); err != nil || c["egress"] == nil {
			t.Fatalf("%s: %v in %s", page, err, example)
		}
		return c["egress"]
	}
	all := section("operators.md")
	maps.Copy(all, section("border-routers.md"))
	text, err := yaml.Marshal(map[string]any{"egress": all})
	if err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inDirectory(t, strings.ReplaceAll(string(text), "/etc/plait/reflector", password))
	c, err := ReadConfig("plait.yaml")
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	if routers, err := c.Egress.Render(); err != nil || len(routers) != 3 {
		t.Errorf("got %d routers, %v, want two border routers and a reflector", len(routers), err)
	}
}

// What is for rendering alone does not keep a running plait from reading its configuration again; what is for servers does.
func TestReloadBesideBorderRouters(t *testing.T) {
	network := strings.Replace(files(networkText), "mode: off", "mode: observe", 1)
	before, _, _ := strings.Cut(strings.Replace(network, ", name: rr, router_id: 192.0.2.2", "", 1), "  border_routers:")
	inDirectory(t, before)
	c, err := ReadConfig("plait.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text, refused := range map[string]bool{network: false, strings.Replace(network, "address: 2001:db8:1::10", "address: 2001:db8:1::12", 1): true} {
		if err := os.WriteFile("plait.yaml", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Reread("plait.yaml"); (err != nil) != refused {
			t.Errorf("refused: %v, want %v", err, refused)
		}
	}
}

func TestRenderMistakes(t *testing.T) {
	for name, x := range map[string]struct{ old, new, want string }{
		"a reflector with TCP-AO":                          {"password_file: PASSWORD}\n    - {address: \"2001:db8:1::3\"}", "ao_keys: [{file: /etc/plait/rr, send_id: 1, receive_id: 1}]}\n    - {address: \"2001:db8:1::3\"}", "plait.yaml:10:75: ao_keys: border_routers are rendered for FRR, which has no TCP-AO"},
		"an address nobody is told of":                     {"addresses: 2001:db8:1::b}", "addresses: 2001:db8:2::b}", "plait.yaml:16:5: announce: no prefix has 2001:db8:2::b of exit \"b\""},
		"host bits":                                        {"2001:db8:1::/48, ", "2001:db8:1::1/48, ", "plait.yaml:7:14: announce: 2001:db8:1::1/48: expected IP prefixes"},
		"a reflector of IPv4":                              {`{address: "2001:db8:1::3"}`, "{address: 192.0.2.3}", "plait.yaml:16:5: reflectors: address 192.0.2.3: border routers connect to it from their IPv6 addresses; expected an IPv6 address"},
		"a reflector's router ID on the server":            {"router_id: 192.0.2.10", "router_id: 192.0.2.2", "plait.yaml:2:3: egress: router_id: 192.0.2.2 is of reflector rr: expected one of no other BGP speaker"},
		"a border router's router ID on the server":        {"router_id: 192.0.2.10", "router_id: 192.0.2.11", "plait.yaml:2:3: egress: router_id: 192.0.2.11 is of border router as1: expected one of no other BGP speaker"},
		"a border router's address for an exit":            {"addresses: 2001:db8:1::b}", "addresses: 2001:db8:1::11}", "plait.yaml:2:3: egress: exits: address 2001:db8:1::11 of exit b is border router as1's: expected one that no other host has"},
		"a server that reflectors do not expect":           {"servers: 2001:db8:1::/64", "servers: 2001:db8:2::/64", "plait.yaml:8:12: servers: none has address 2001:db8:1::10: the reflectors would refuse this server; expected one that has"},
		"a border router's address on the server":          {"address: 2001:db8:1::10", "address: 2001:db8:1::11", "plait.yaml:2:3: egress: address: 2001:db8:1::11 is of border router as1"},
		"a router ID of zeros":                             {"router_id: 192.0.2.11", "router_id: 0.0.0.0", "plait.yaml:17:18: router_id: 0.0.0.0: expected an IPv4 address, not 0.0.0.0"},
		"a way to everywhere announced":                    {"[2001:db8:1::/48, ", "[\"::/0\", 2001:db8:1::/48, ", "plait.yaml:7:14: announce: ::/0: expected IP prefixes longer than /0"},
		"servers everywhere":                               {"servers: 2001:db8:1::/64", "servers: \"::/0\"", "plait.yaml:8:12: servers: ::/0: expected IP prefixes longer than /0"},
		"a prefix twice":                                   {"[2001:db8:1::/48, ", "[2001:db8:1::/48, 2001:db8:1::/48, ", "plait.yaml:16:5: announce: 2001:db8:1::/48 is there twice"},
		"a neighbour's address twice":                      {"addresses: 2001:db8:ffff::2}", "addresses: [2001:db8:ffff::2, 2001:db8:ffff::2]}", "plait.yaml:24:11: border_routers: address 2001:db8:ffff::2: it is the router's own, or there twice"},
		"a neighbour at the router's address":              {"addresses: 2001:db8:ffff::2}", "addresses: 2001:db8:1::11}", "plait.yaml:24:11: border_routers: address 2001:db8:1::11: it is the router's own, or there twice"},
		"no servers":                                       {"  servers: 2001:db8:1::/64\n", "", "plait.yaml:15:5: no servers"},
		"one router ID twice":                              {"router_id: 192.0.2.11", "router_id: 192.0.2.2", "plait.yaml:16:5: border router as1: router_id 192.0.2.2 is of reflector rr already"},
		"a name that is no directory":                      {"name: as1", "name: ../as1", "plait.yaml:16:7: border_routers: name \"../as1\""},
		"no locator":                                       {"      locator: 2001:db8:f001::/48\n", "", "plait.yaml:16:7: border_routers: no router_id, address or locator"},
		"a long locator":                                   {"locator: 2001:db8:f001::/48", "locator: 2001:db8:f001::/96", "plait.yaml:16:7: border_routers: locator 2001:db8:f001::/96: expected 40 to 80 bits"},
		"a locator of no exit":                             {"locator: 2001:db8:f001::/48", "locator: 2001:db8:e001::/48", "plait.yaml:23:11: border_routers: exit a has no locator with 2001:db8:e001::/48"},
		"a locator of IPv4":                                {"locator: 2001:db8:f001::/48", "locator: 192.0.2.0/24", "plait.yaml:19:16: locator: 192.0.2.0/24: expected an IPv6 prefix"},
		"an exit there is not":                             {"- {name: b, interface", "- {name: c, interface", "plait.yaml:24:11: border_routers: name c: expected the name of one of the exits"},
		"an exit twice":                                    {"- {name: b, interface", "- {name: a, interface", "plait.yaml:24:11: border_routers: exit a, interface eth2: a on eth1 has one of them already"},
		"an interface of two sides":                        {"interface: eth2", "interface: eth0", "plait.yaml:24:11: border_routers: interface eth0: it leads into the network"},
		"an interface that is a command":                   {"interface: eth2", "interface: $(reboot)", "plait.yaml:24:11: border_routers: interface \"$(reboot)\""},
		"a neighbour inside":                               {"as: 64497", "as: 65000", "plait.yaml:24:11: border_routers: as 65000: it is this network's own"},
		"nothing to announce to the peer":                  {", 198.51.100.0/24]", "]", "plait.yaml:16:5: announce: no prefix has 198.51.100.1"},
		"a key's name as a value":                          {"interface: eth0\n  announce: [2001:db8:1::/48, 198.51.100.0/24]", "interface: border_routers\n  announce: 2001:db8:1::/48", "plait.yaml:16:5: announce: no prefix has 198.51.100.1"},
		"an exit's own prefix for all":                     {"addresses: 2001:db8:ffff::2}", "addresses: 2001:db8:ffff::2, announce: 2001:db8:1::/48}", "plait.yaml:24:11: border_routers: announce: 2001:db8:1::/48: all exits announce it"},
		"an own prefix for a neighbour without its family": {"addresses: 2001:db8:ffff::2}", "addresses: 2001:db8:ffff::2, announce: 203.0.113.0/24}", "plait.yaml:24:11: border_routers: announce: 203.0.113.0/24: the neighbour has no address of its family"},
		"an own prefix of two exits":                       {"max_prefixes: 1000, password_file: PASSWORD}\n        - {name: b, interface: eth2, as: 64497,", "announce: 2001:db8:b::/48}\n        - {name: b, interface: eth2, as: 64497, announce: 2001:db8:b::/48,", "plait.yaml:23:11: border_routers: announce: 2001:db8:b::/48: exit b announces it as well"},
		"a pool that is announced in part":                 {"addresses: 2001:db8:1::b}", "addresses: 2001:db8::/32}", "plait.yaml:14:7: exits: addresses: 2001:db8::/32: no prefix of announce"},
		"another exit's own prefix":                        {"addresses: 2001:db8:1::b}", "addresses: 2001:db8:b::b}", "plait.yaml:16:5: announce: no prefix has 2001:db8:b::b of exit \"b\""},
		"a neighbour by the link alone":                    {"addresses: 2001:db8:ffff::2}", `addresses: "fe80::2"}`, "plait.yaml:24:60: addresses: fe80::2: expected an IP address"},
		"no neighbour's address":                           {"addresses: 2001:db8:ffff::2}", `addresses: "::"}`, "plait.yaml:24:60: addresses: ::: expected an IP address"},
		"a gateway's interface":                            {"gateways: 2001:db8:1::fe", "gateways: fe80::1%eth0", "plait.yaml:21:17: gateways: fe80::1%eth0: expected an IP address"},
		"a group of gateways":                              {"gateways: 2001:db8:1::fe", "gateways: ff02::2", "plait.yaml:21:17: gateways: ff02::2: expected an IP address"},
		"two gateways":                                     {"gateways: 2001:db8:1::fe", "gateways: [2001:db8:1::fe, 2001:db8:1::fd]", "plait.yaml:16:7: border_routers: gateways: 2001:db8:1::fd is the second of its family"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(networkText, x.old, x.new, 1)
			if text == networkText {
				t.Fatal("nothing was replaced")
			}
			inDirectory(t, files(text))
			if _, err := ReadConfig("plait.yaml"); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v\nwant %s", err, x.want)
			}
		})
	}
}

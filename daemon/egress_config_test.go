package daemon

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/bgp"
)

const egressText = `
egress:
  mode: on
  as: 65000
  router_id: 192.0.2.1
  address: 2001:db8:1::10
  interface: eth0
  reflectors:
    - {address: "2001:db8:1::2", password_file: /etc/plait/rr, max_prefixes: 1000000}
    - {address: 192.0.2.2, ao_keys: [{file: /etc/plait/rr1, send_id: 0, receive_id: 255}, {file: /etc/plait/rr2, send_id: 2, receive_id: 2, algorithm: aes-128-cmac-96}]}
  exits:
    - {name: a, route_target: "65000:11", locators: 2001:db8:f1::/48, addresses: 2001:db8:1::a, cost: 2, cap_mbps: 800}
    - {name: b, route_target: "65000:12", locators: [2001:db8:f2::/48], addresses: [2001:db8:1::b, 192.0.2.12]}
  rules:
    - {port: 443, strategy: latency}
    - {prefixes: 2001:db8:c::/48, holdout_percent: 50}
  holdout_percent: 10
`

func TestReadEgress(t *testing.T) {
	inDirectory(t, egressText)
	c, err := ReadConfig("plait.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := Egress{
		Mode: On, AS: 65000, RouterID: netip.MustParseAddr("192.0.2.1"), Address: netip.MustParseAddr("2001:db8:1::10"), Interface: "eth0",
		Reflectors: []Reflector{{Address: netip.MustParseAddr("2001:db8:1::2"), PasswordFile: "/etc/plait/rr", MaxPrefixes: 1000000},
			{Address: netip.MustParseAddr("192.0.2.2"), AOKeys: []AOKey{{"/etc/plait/rr1", bgp.AOKey{ReceiveID: 255, Algorithm: bgp.HMACSHA1}},
				{"/etc/plait/rr2", bgp.AOKey{SendID: 2, ReceiveID: 2, Algorithm: bgp.AES128CMAC}}}}},
		Exits: []egress.Exit{
			{Name: "a", RouteTarget: "65000:11", Locators: []netip.Prefix{netip.MustParsePrefix("2001:db8:f1::/48")},
				Addresses: []netip.Addr{netip.MustParseAddr("2001:db8:1::a")}, Table: firstTable, Cost: 2, CapMbps: 800},
			{Name: "b", RouteTarget: "65000:12", Locators: []netip.Prefix{netip.MustParsePrefix("2001:db8:f2::/48")},
				Addresses: []netip.Addr{netip.MustParseAddr("2001:db8:1::b"), netip.MustParseAddr("192.0.2.12")}, Table: firstTable + 1},
		},
		Service: Service{egress.Throughput, 10}, MovedPercent: 100,
		Rules: []ServiceRule{
			{Selection{Selector: "port 443", Ports: []uint16{443}}, Service{egress.Latency, 10}},
			{Selection{Selector: "prefix 2001:db8:c::/48", Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8:c::/48")}}, Service{egress.Throughput, 50}},
		},
	}
	if !reflect.DeepEqual(c.Egress, want) {
		t.Errorf("got %+v\nwant %+v", c.Egress, want)
	}
	if c, _ = c.Override(Overrides{Observe: true}); c.Egress.Mode != Observe {
		t.Errorf("mode %s, want observe: the command line says so", c.Egress.Mode)
	}
}

// Keys of TCP-AO come from their files.
func TestAOSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	r := Reflector{Address: netip.MustParseAddr("192.0.2.2"), AOKeys: []AOKey{{file, bgp.AOKey{SendID: 1, ReceiveID: 2, Algorithm: bgp.HMACSHA1}}}}
	for text, want := range map[string]string{"secret\nother": "", "secret\r\n": "", "": "expected 1 to 80 bytes in its first line", strings.Repeat("x", 81): "expected 1 to 80 bytes in its first line"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := r.secrets()
		switch {
		case want == "" && (err != nil || !reflect.DeepEqual(got, []bgp.AOKey{{Key: "secret", SendID: 1, ReceiveID: 2, Algorithm: bgp.HMACSHA1}})):
			t.Errorf("got %+v, %v", got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), "read the TCP-AO key for reflector 192.0.2.2: ") || !strings.Contains(err.Error(), want)):
			t.Errorf("%d bytes: %v, want %s", len(text), err, want)
		}
	}
	if r.AOKeys[0].Key != "" {
		t.Error("the configuration holds the key")
	}
}

// plait doctor says what would keep plait from coming up, also as the package's unit, for which root has no right to read others' files, and what everybody can read.
func TestDoctorSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	own := OK
	if os.Getuid() != 0 {
		own = Warn
	}
	for _, c := range []struct {
		text string
		mode os.FileMode
		want Health
	}{{"", 0, Fail}, {"\n", 0o600, Fail}, {"secret\n", 0o644, Warn}, {"secret\n", 0o640, own}} {
		if c.mode != 0 {
			if err := errors.Join(os.WriteFile(file, []byte(c.text), 0o600), os.Chmod(file, c.mode)); err != nil {
				t.Fatal(err)
			}
		}
		checks := checkSecrets(Egress{Mode: Observe, Exits: []egress.Exit{{}}, Reflectors: []Reflector{{PasswordFile: file}}})
		if len(checks) != 1 || checks[0].Health != c.want {
			t.Errorf("%q, mode %o: %+v, want %s", c.text, c.mode, checks, c.want)
		}
	}
	if os.Chown(file, 7, 7) == nil { // as root
		checks := checkSecrets(Egress{Mode: Observe, Exits: []egress.Exit{{}}, Reflectors: []Reflector{{PasswordFile: file}}})
		if len(checks) != 1 || checks[0].Health != Warn || !strings.Contains(checks[0].Found, "unit cannot read "+file) {
			t.Errorf("another user's: %+v", checks)
		}
	}
	if got := checkSecrets(Egress{Mode: Observe, Exits: []egress.Exit{{}}, Reflectors: []Reflector{{}}}); got != nil {
		t.Errorf("without secrets: %+v", got)
	}
}

// What is wrong with an exit is told once, at its own place, whether one of its keys is or what they are together.
func TestMistakenExitOnce(t *testing.T) {
	for mistake, want := range map[string]string{
		"":                          `plait.yaml:12:7: exits: plan exit "a": it has no locator, so every SID would be refused: give the SRv6 prefix of its border router`,
		"locators: 2001:db8:f1::, ": "plait.yaml:12:53: locators: 2001:db8:f1::: expected an IPv6 prefix without bits behind its length, like 2001:db8:f1::/48",
	} {
		inDirectory(t, strings.Replace(egressText, "locators: 2001:db8:f1::/48, ", mistake, 1))
		if _, err := ReadConfig("plait.yaml"); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// Route targets are those of RFC 4360 and 5668, as the speaker writes them.
// Names stand in tables and in the log, where the exit of what leaves by none is a dash.
func TestNames(t *testing.T) {
	for name, want := range map[string]bool{"transit-a": true, "Zürich 1": true, "": false, " ": false, "-": false, "a\nb": false, "\x1b[31m": false, "a ": false, strings.Repeat("x", 33): false} {
		if why := wrongName(name); (why == "") != want {
			t.Errorf("%q: %q", name, why)
		}
	}
}

func TestRouteTargets(t *testing.T) {
	for target, want := range map[string]bool{"65000:11": true, "65000:4294967295": true, "4200000000:11": true, "192.0.2.1:11": true,
		"4200000000:65536": false, "192.0.2.1:65536": false, "192.0.2.1:011": false, "2001:db8::1:11": false, "192.0.2.1": false, "": false} {
		if why := wrongRouteTarget(target); (why == "") != want {
			t.Errorf("%q: %q, want it taken: %v", target, why, want)
		}
	}
}

func TestEgressMistakes(t *testing.T) {
	for name, x := range map[string]struct{ old, new, want string }{
		"a reflector's name":  {`address: "2001:db8:1::2"`, "address: rr1", "plait.yaml:9:17: address: rr1: expected an IP address"},
		"an AS":               {"as: 65000", "as: AS65000", "plait.yaml:4:7: as: AS65000: expected a number from 1 to 4294967295"},
		"no router id":        {"  router_id: 192.0.2.1\n", "", "plait.yaml:3:3: egress: no router_id: expected one"},
		"a router id of IPv6": {"router_id: 192.0.2.1", `router_id: "2001:db8::1"`, "plait.yaml:5:14: router_id: 2001:db8::1: expected an IPv4 address"},
		"a router id of 0":    {"router_id: 192.0.2.1", "router_id: 0.0.0.0", "plait.yaml:5:14: router_id: 0.0.0.0: expected an IPv4 address, not 0.0.0.0"},
		"a reflector twice":   {"192.0.2.2, ", `"2001:db8:1::2", `, "plait.yaml:10:7: reflectors: 2001:db8:1::2: expected each address once"},
		"a route target":      {`"65000:12"`, "transit-b", `plait.yaml:13:31: route_target: transit-b: expected a route target like "65000:11"`},
		"a target of 8 bytes": {`"65000:12"`, `"65536:70000"`, "plait.yaml:13:31: route_target: 65536:70000: expected a route target with one number of at most 65535"},
		"a target with a 0":   {`"65000:12"`, `"065000:12"`, `plait.yaml:13:31: route_target: 065000:12: expected a route target like "65000:11"`},
		"an exit's address":   {"2001:db8:1::b,", "2001:db8:1::10,", "plait.yaml:3:3: egress: address: 2001:db8:1::10: expected an address that exit b has not got"},
		"a reflector's":       {"2001:db8:1::b,", "2001:db8:1::2,", "plait.yaml:3:3: egress: exits: address 2001:db8:1::2 of exit b is a reflector's: expected one that no other host has"},
		"a locator's length":  {"2001:db8:f1::/48", "2001:db8:f1:1::/48", "plait.yaml:12:53: locators: 2001:db8:f1:1::/48: expected an IPv6 prefix without bits behind its length"},
		"a mapped locator":    {"2001:db8:f1::/48", `"::ffff:192.0.2.0/120"`, "plait.yaml:12:53: locators: ::ffff:192.0.2.0/120: expected an IPv6 prefix"},
		"two with one target": {`"65000:12"`, `"65000:11"`, "plait.yaml:13:7: exits: "},
		"an unknown key":      {"interface: eth0", "device: eth0", "plait.yaml:7:3: device: unknown key: expected "},
		"SIDs and a target":   {`route_target: "65000:12"`, `route_target: "65000:12", sids: "fc00::1"`, "plait.yaml:13:7: exits: plan exit \"b\": its routes are known by its SIDs: leave out route target and locators"},
		"a SID with a length": {`route_target: "65000:12"`, `sids: "fc00::/64"`, "sids: fc00::/64: expected an IPv6 address"},
		"a strategy":          {"strategy: latency", "strategy: fastest", "plait.yaml:15:29: strategy: fastest: expected "},
		"a rule for nothing":  {"port: 443, ", "", "plait.yaml:15:7: rules: no port, prefix or cgroup: expected one at least"},
		"a cap":               {"cap_mbps: 800", "cap_mbps: -1", "plait.yaml:12:116: cap_mbps: -1: expected a number from 0 to 1000000, in Mbit/s of this host's traffic"},
		"a password and keys": {"address: 192.0.2.2,", "address: 192.0.2.2, password_file: /etc/plait/rr,", "plait.yaml:10:7: reflectors: password_file and ao_keys: expected one of them"},
		"a key without IDs":   {", send_id: 0, receive_id: 255", ", send_id: 0", "plait.yaml:10:38: ao_keys: no file, send_id or receive_id: expected all of them"},
		"an ID of 256":        {"receive_id: 255", "receive_id: 256", "plait.yaml:10:85: receive_id: 256: expected a number from 0 to 255"},
		"an ID twice":         {"send_id: 2", "send_id: 0", "plait.yaml:10:91: ao_keys: two TCP-AO keys have the send ID 0: want another for each"},
		"an algorithm":        {"aes-128-cmac-96", "aes-128", "plait.yaml:10:152: algorithm: aes-128: expected hmac-sha-1-96 or aes-128-cmac-96"},
		"exits as a mapping":  {"  exits:\n    - {", "  exits:\n    {", "expected YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(egressText, x.old, x.new, 1)
			if text == egressText {
				t.Fatal("nothing was replaced")
			}
			inDirectory(t, text)
			if _, err := ReadConfig("plait.yaml"); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v\nwant %s", err, x.want)
			}
		})
	}
}

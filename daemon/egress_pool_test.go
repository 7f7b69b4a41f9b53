package daemon

import (
	"net/netip"
	"strings"
	"testing"
)

func TestPool(t *testing.T) {
	for _, c := range [][3]string{
		{"2001:db8:a::/64", "2001:db8:1::10", "2001:db8:a::10"},
		{"2001:db8:a::/48", "2001:db8:1:2::10", "2001:db8:a:2::10"},
		{"2001:db8:a:fe00::/55", "2001:db8:1:12f::10", "2001:db8:a:ff2f::10"},
		{"198.51.100.0/24", "192.0.2.10", "198.51.100.10"},
		{"198.51.100.128/26", "192.0.2.77", "198.51.100.141"},
		{"2001:db8:a::/64", "2001:db8:1:2::", "invalid IP"},
	} {
		if got := (pool{Prefix: netip.MustParsePrefix(c[0])}).of(netip.MustParseAddr(c[1])).String(); got != c[2] {
			t.Errorf("%s of %s: %s, want %s", c[1], c[0], got, c[2])
		}
	}
}

// Where exits' addresses are prefixes, what the file says before or after does not matter, and what is wrong is told with its line.
func TestReadPools(t *testing.T) {
	for _, c := range [][3]string{
		{"2001:db8:1::b, 192.0.2.12", "192.0.2.128/26, 2001:db8:b::/64", "192.0.2.129 2001:db8:b::10"},
		{"2001:db8:1::b, 192.0.2.12", "2001:db8:b::/64, 192.0.2.12", "192.0.2.12 2001:db8:b::10"},
		{"2001:db8:1::b, 192.0.2.12", "2001:db8:1::/64", "plait.yaml:3:3: egress: address: 2001:db8:1::10: expected an address that exit b has not got"},
		{"2001:db8:1::b, 192.0.2.12", "2001:db8:b::/64, 2001:db8:b::1", "plait.yaml:13:7: exits: plan exit \"b\": address 2001:db8:b::10 is the second of its family"},
		{"2001:db8:1::b, 192.0.2.12", "192.0.2.0/31", "192.0.2.1"},
		{"2001:db8:1::b, 192.0.2.12", "192.0.2.1/24", "plait.yaml:13:85: addresses: 192.0.2.1/24: expected an IP address, or a prefix"},
		{"2001:db8:1::10", `"2001:db8:1:2::"`, "plait.yaml:12:7: exits: addresses: 2001:db8:a::/64: the address taken from it has the bits of address (2001:db8:1:2::)"},
	} {
		text := strings.Replace(egressText, "addresses: 2001:db8:1::a,", "addresses: 2001:db8:a::/64,", 1)
		inDirectory(t, strings.Replace(text, c[0], c[1], 1))
		got, err := ReadConfig("plait.yaml")
		if err != nil {
			if !strings.HasPrefix(err.Error(), c[2]) {
				t.Errorf("%s: %v, want %s", c[1], err, c[2])
			}
			continue
		}
		var all []string
		for _, a := range got.Egress.Exits[1].Addresses {
			all = append(all, a.String())
		}
		if strings.Join(all, " ") != c[2] || got.Egress.Exits[0].Addresses[0].String() != "2001:db8:a::10" {
			t.Errorf("%s: exits %+v, want %s", c[1], got.Egress.Exits, c[2])
		}
	}
}

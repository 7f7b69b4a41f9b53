package daemon

import (
	"net/netip"
	"slices"
	"testing"

	"plait.dev/plait/egress"
)

// The doctor warns of an interface and of an address that the section egress names and the host lacks.
func TestCheckInterface(t *testing.T) {
	const name = "exits' interface"
	noInterface := Check{name, Warn, "the section egress names interface nosuch, which cannot be found (route ip+net: no such network interface): plait needs it for the addresses of the exits",
		"correct interface in the section egress, unless it comes later"}
	noAddress := Check{name, Warn, "this host has no address 2001:db8::1, from which sessions with IPv6 reflectors and tunnels come", "add it, or correct address in the section egress"}
	for _, c := range []struct {
		mode               Mode
		interfaceName, own string
		want               []Check
	}{
		{Observe, "nosuch", "127.0.0.1", []Check{noInterface}},
		{On, "lo", "2001:db8::1", []Check{noAddress}},
		{On, "nosuch", "2001:db8::1", []Check{noInterface, noAddress}},
		{On, "lo", "127.0.0.1", []Check{{name, OK, "lo is there, and so is 127.0.0.1", ""}}},
		{Off, "nosuch", "2001:db8::1", nil},
	} {
		x := Egress{Mode: c.mode, Interface: c.interfaceName, Address: netip.MustParseAddr(c.own), Exits: []egress.Exit{{}}}
		if got := checkInterface(x); !slices.Equal(got, c.want) {
			t.Errorf("mode %s, interface %s, address %s:\ngot  %+v\nwant %+v", c.mode, c.interfaceName, c.own, got, c.want)
		}
	}
}

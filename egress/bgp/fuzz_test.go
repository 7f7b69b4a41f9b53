package bgp

import (
	"errors"
	"slices"
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// oneLabelEach checks that the parser has read one label of each VPN route, and not what follows it.
func oneLabelEach(t *testing.T, body []byte, options *wire.MarshallingOption) {
	t.Helper()
	var err error
	defer survive(wire.BGP_MSG_UPDATE, body, &err)
	m, _, err := parse(wire.BGP_MSG_UPDATE, slices.Clone(body), options)
	if err != nil {
		return
	}
	for _, attr := range m.Body.(*wire.BGPUpdate).PathAttributes {
		var routes []wire.PathNLRI
		family := -1
		switch attr := attr.(type) {
		case *wire.PathAttributeMpReachNLRI:
			routes, family = attr.Value, familyOf(wire.NewFamily(attr.AFI, attr.SAFI))
		case *wire.PathAttributeMpUnreachNLRI:
			routes, family = attr.Value, familyOf(wire.NewFamily(attr.AFI, attr.SAFI))
		}
		for _, r := range routes {
			if v, ok := r.NLRI.(*wire.LabeledVPNIPAddrPrefix); ok && family >= 0 && (len(v.Labels.Labels) != 1 || v.Labels.Labels[0] >= 1<<labelBits) {
				t.Fatalf("%s has the labels %v", v, v.Labels.Labels)
			}
		}
	}
}

// Whatever a reflector sends, no panic reaches the caller, and what is accepted is a route the kernel can take.
func FuzzUpdate(f *testing.F) {
	for _, a := range []announcement{vpn("2001:db8:c::/48", "2001:db8:d::/48"), unicastRoute("2001:db8:c::/48"), unicastRoute("192.0.2.0/24")} {
		f.Add(encode(f, a.message(f), false)[wire.BGP_HEADER_LENGTH:], false)
		f.Add(encode(f, a.message(f), true)[wire.BGP_HEADER_LENGTH:], true)
		f.Add(encode(f, a.withdrawal(f), false)[wire.BGP_HEADER_LENGTH:], false)
		f.Add(encode(f, a.withdrawal(f), true)[wire.BGP_HEADER_LENGTH:], true)
	}
	f.Add(encode(f, wire.NewEndOfRib(wire.RF_IPv6_VPN), false)[wire.BGP_HEADER_LENGTH:], false)
	n := newInterner()
	f.Fuzz(func(t *testing.T, body []byte, addPath bool) {
		if len(body) > wire.BGP_MAX_EXTENDED_MESSAGE_LENGTH-wire.BGP_HEADER_LENGTH {
			return
		}
		a := &agreement{agreed: [families]bool{true, true, true, true}}
		a.options.AddPath = map[wire.Family]wire.BGPAddPathMode{}
		if addPath {
			for _, family := range wireFamilies {
				a.options.AddPath[family] = wire.BGP_ADD_PATH_RECEIVE
			}
		}
		oneLabelEach(t, body, &a.options)
		changes, _, err := understand(nil, wire.BGP_MSG_UPDATE, slices.Clone(body), a, testScope(), n)
		if err != nil {
			if _, ok := errors.AsType[*protocolError](err); !ok || err.Error() == "" {
				t.Fatalf("got %T %q: it cannot be told to the reflector", err, err)
			}
			return
		}
		for _, c := range changes {
			if c.route == nil {
				continue
			}
			p := c.key.prefix()
			if p.Masked() != p || p.Addr().Is4() != (c.family == IPv4 || c.family == VPNv4) {
				t.Fatalf("prefix %s of %s", p, c.family)
			}
			if !c.route.NextHop.IsValid() || !c.route.RouterID.IsValid() || c.refused != accepted {
				t.Fatalf("route %+v, refused %q", c.route, c.refused)
			}
			if isVPN := c.family == VPNv4 || c.family == VPNv6; isVPN != c.route.SID.IsValid() || isVPN != (len(c.route.RouteTargets) > 0) {
				t.Fatalf("route of %s: %+v", c.family, c.route)
			}
		}
	})
}

// What a reflector says about itself decides about a session or refuses it, and never ends the process.
func FuzzOpen(f *testing.F) {
	config := &Config{AS: testAS, RouterID: reflectorID, Reflectors: []Reflector{{Address: reflectorID}}}
	must(f, config.complete())
	m, err := openMessage(config, &config.Reflectors[0])
	must(f, err)
	raw, err := m.Serialize()
	must(f, err)
	f.Add(raw[wire.BGP_HEADER_LENGTH:])
	config.RouterID = hostID
	f.Fuzz(func(t *testing.T, body []byte) {
		var err error
		func() {
			defer survive(wire.BGP_MSG_OPEN, body, &err)
			var m *wire.BGPMessage
			if m, _, err = parse(wire.BGP_MSG_OPEN, body, nil); err == nil {
				var a *agreement
				if a, err = agree(m.Body.(*wire.BGPOpen), config, &config.Reflectors[0]); err == nil && a.agreed == [families]bool{} {
					t.Fatal("agreed on no family")
				}
			}
		}()
		if _, ok := errors.AsType[*protocolError](err); err != nil && !ok {
			t.Fatalf("got %T %v", err, err)
		}
	})
}

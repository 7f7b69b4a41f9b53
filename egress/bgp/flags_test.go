package bgp

import (
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// reflag puts other flags on the attribute of kind, and leaves what says how long its length is.
func reflag(t *testing.T, raw []byte, kind, flags byte) []byte {
	t.Helper()
	at := cap(raw) - cap(attribute(t, raw, kind)) - 3
	if raw[at+1] != kind {
		t.Fatalf("attribute %d is not at %d of %x", kind, at, raw)
	}
	raw[at] = raw[at]&byte(wire.BGP_ATTR_FLAG_EXTENDED_LENGTH) | flags
	return raw
}

// Routes in an attribute of wrong flags are not read. Nobody knows then what is missing: the session ends and says so (RFC 7606 sections 3 j and 5.3).
func TestFlagsOfRoutes(t *testing.T) {
	a := vpn("2001:db8:c::/48")
	for name, c := range map[string]struct {
		say  *wire.BGPMessage
		kind byte
	}{
		"announced": {a.message(t), 14}, "withdrawn": {a.withdrawal(t), 15}, "unicast": {unicastRoute("2001:db8:c::/48").message(t), 14},
		"end of RIB": {wire.NewEndOfRib(wire.RF_IPv6_VPN), 15},
	} {
		for _, flags := range []byte{0xc0, 0x40, 0, 0xa0, 0xe0} {
			changes, end, err := heard(t, reflag(t, encode(t, c.say, false), c.kind, flags), false)
			e, ok := err.(*protocolError) //nolint:errorlint // these are not wrapped
			if !ok || e.code != wire.BGP_ERROR_UPDATE_MESSAGE_ERROR || e.sub != wire.BGP_ERROR_SUB_ATTRIBUTE_FLAGS_ERROR {
				t.Errorf("%s, flags %#x: got %v, end %d, error %v", name, flags, changes, end, err)
			}
		}
	}
}

// Of other attributes they cost the routes of the UPDATE. The four bits that mean nothing cost none, of any attribute (RFC 4271 section 4.3).
func TestFlagsOfAttributes(t *testing.T) {
	for _, c := range []struct {
		kind, flags byte
		want        refusal
	}{
		{1, 0xc0, malformed}, {2, 0x80, malformed}, {5, 0xc0, malformed}, {40, 0x80, malformed},
		{1, 0x4f, accepted}, {2, 0x48, accepted}, {14, 0x81, accepted}, {16, 0xc2, accepted}, {40, 0xcf, accepted},
	} {
		changes, _, err := heard(t, reflag(t, encode(t, vpn("2001:db8:c::/48").message(t), false), c.kind, c.flags), false)
		if err != nil || len(changes) != 1 || changes[0].refused != c.want || (changes[0].route != nil) != (c.want == accepted) {
			t.Errorf("attribute %d, flags %#x: got %+v, error %v; want refused %q", c.kind, c.flags, changes, err, c.want)
		}
	}
	changes, _, err := heard(t, reflag(t, encode(t, vpn("2001:db8:c::/48").withdrawal(t), false), 15, 0x8f), false)
	if err != nil || len(changes) != 1 {
		t.Errorf("withdrawn with flags 0x8f: got %+v, error %v", changes, err)
	}
}

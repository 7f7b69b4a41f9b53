package bgp

import (
	"slices"
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// relabel puts 3 bytes into the label field of the routes of attribute kind, which are all of the same length.
func relabel(t *testing.T, raw []byte, kind byte, ahead, length int, label []byte) []byte {
	t.Helper()
	routes := attribute(t, raw, kind)[ahead:]
	for i := 0; i < len(routes); i += length {
		copy(routes[i+length-(3+8+6):], label)
	}
	return raw
}

// A withdrawal means the route that was announced, whatever its label field holds (RFC 8277 section 2.4): not least if the bytes of the route distinguisher
// behind it look like more labels.
func TestLabelOfAWithdrawal(t *testing.T) {
	for _, label := range [][]byte{{0x80, 0, 0}, {0, 0, 0}, {0, 1, 1}, {0, 1, 0}, {0, 0, 0x31}, {0, 0, 0x30}, {0xff, 0xff, 0xfe}, {0x80, 0, 1}} {
		for _, rd := range []string{"65000:11", "64999:11", "192.0.2.1:5", "0.65000:11"} {
			for _, addPath := range []bool{false, true} {
				a := vpn("2001:db8:c::/48", "2001:db8:d::/48")
				a.rd = rd
				length := 1 + 3 + 8 + 6
				if addPath {
					a.pathIDs, length = []uint32{7, 8}, length+4
				}
				announced, _, err := heard(t, encode(t, a.message(t), addPath), addPath)
				must(t, err)
				withdrawn, _, err := heard(t, relabel(t, encode(t, a.withdrawal(t), addPath), 15, 3, length, label), addPath)
				if err != nil || len(withdrawn) != 2 {
					t.Errorf("label %x, %s, ADD-PATH %v: got %+v, error %v", label, rd, addPath, withdrawn, err)
					continue
				}
				for i, w := range withdrawn {
					if w.key != announced[i].key || w.family != VPNv6 || w.route != nil {
						t.Errorf("label %x, %s, ADD-PATH %v: withdrawn is %s of %x, path %d", label, rd, addPath, w.key.prefix(), w.key.distinguisher, w.key.pathID)
					}
				}
			}
		}
	}
}

// A withdrawal in front of an announcement is read as one alone is.
func TestLabelOfAWithdrawalBesideAnAnnouncement(t *testing.T) {
	gone, come := vpn("2001:db8:c::/48"), unicastRoute("2001:db8:e::/48")
	m := come.message(t)
	body := m.Body.(*wire.BGPUpdate)
	body.PathAttributes = slices.Concat(gone.withdrawal(t).Body.(*wire.BGPUpdate).PathAttributes, body.PathAttributes)
	changes, _, err := heard(t, relabel(t, encode(t, m, false), 15, 3, 18, []byte{0, 1, 0}), false)
	if err != nil || len(changes) != 2 || changes[0].key.prefix().String() != "2001:db8:c::/48" || changes[1].key.prefix().String() != "2001:db8:e::/48" {
		t.Errorf("got %+v, error %v", changes, err)
	}
}

// An announced route has one label, and its bottom-of-stack bit does not count (RFC 8277 section 2.2): with a SID, and without one, when it withdraws what was
// announced before.
func TestLabelOfAnAnnouncement(t *testing.T) {
	for name, c := range map[string]struct {
		label []byte
		sid   string // empty: the UPDATE has none
	}{
		"with the bit": {[]byte{0, 1, 1}, "2001:db8:f1:1::"}, "without": {[]byte{0, 1, 0}, "2001:db8:f1:1::"},
		"without, and no SID":      {[]byte{0, 1, 0}, ""},
		"the label of withdrawals": {[]byte{0x80, 0, 0}, "2001:db8:f1:8000::"}, "with the bit, too": {[]byte{0x80, 0, 1}, "2001:db8:f1:8000::"},
		"the label of withdrawals, and no SID": {[]byte{0x80, 0, 0}, ""},
	} {
		a := vpn("2001:db8:c::/48")
		want, _, err := heard(t, encode(t, a.message(t), false), false)
		must(t, err)
		if c.sid == "" {
			a.sid = nil
		}
		got, _, err := heard(t, relabel(t, encode(t, a.message(t), false), 14, 3+1+24+1, 18, c.label), false)
		if err != nil || len(got) != 1 || got[0].key != want[0].key {
			t.Errorf("%s: got %+v, error %v", name, got, err)
			continue
		}
		switch r := got[0].route; {
		case c.sid == "" && got[0].refused != noSID:
			t.Errorf("%s: refused %q", name, got[0].refused)
		case c.sid != "" && (r == nil || r.SID.String() != c.sid):
			t.Errorf("%s: got %+v, refused %q, want SID %s", name, r, got[0].refused, c.sid)
		}
	}
}

package egress

import (
	"net/netip"
	"testing"
)

// IPv4-mapped prefixes are on no wire: a route would be for nobody, and plait egress check would send packets there.
func TestUsable(t *testing.T) {
	for prefix, want := range map[string]bool{"::/0": true, "0.0.0.0/0": true, "2001:db8::/32": true, "192.0.2.0/24": true,
		"::ffff:0.0.0.0/96": false, "::ffff:192.0.2.0/120": false, "ff00::/8": false, "::1/128": false, "fe80::/10": false} {
		if got := usable(netip.MustParsePrefix(prefix)); got != want {
			t.Errorf("%s: %v, want %v", prefix, got, want)
		}
	}
}

package ssh

import (
	"net/netip"
	"testing"

	"plait.dev/plait/stripe"
)

// The far side may say that it has links without addresses.
func TestPort(t *testing.T) {
	at := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:7788")}
	if got := port([]stripe.Peer{{Link: "nowhere"}, {Link: "eth0", Addrs: at}}); got != 7788 {
		t.Errorf("port %d, want 7788", got)
	}
	if got := port([]stripe.Peer{{Link: "nowhere"}}); got != 0 {
		t.Errorf("port %d of no address", got)
	}
}

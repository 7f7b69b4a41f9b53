package check

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"plait.dev/plait/egress"
)

// What to do about refused routes fits the reason.
func TestDoRefused(t *testing.T) {
	for reason, want := range map[egress.Reason]string{egress.OutsideLocator: "the exit's locators", egress.NoSID: "SIDs of its border router", egress.OthersSID: "sids of the other exit",
		egress.TooManySIDs: "one SID for each VRF", egress.NotUnicast: "filter what comes from the peer"} {
		got := routes(Exit{Routes: 1, Refused: []egress.Refusal{{Reason: reason, Routes: 2, Prefix: netip.MustParsePrefix("2001:db8::/32"), SID: sid}}})
		if len(got) != 2 || got[1].Outcome != Failed || !strings.Contains(got[1].Do, want) || got[1].Found != "refused: 2 routes: "+reason.String()+" (last: 2001:db8::/32, SID fc00:1::)" {
			t.Errorf("%v: got %v, want %q", reason, got[1:], want)
		}
	}
}

// Two exits with one SID are one; one for each address family with it are two.
func TestSameSID(t *testing.T) {
	six, four := Sample{Prefix: netip.MustParsePrefix("2001:db8::/32"), SID: sid}, Sample{Prefix: netip.MustParsePrefix("198.51.100.0/24"), SID: sid}
	a, b, c := Exit{Samples: []Sample{six, six}}, Exit{Samples: []Sample{four}}, Exit{Samples: []Sample{six, six}}
	a.Name, b.Name, c.Name = "a", "b", "c"
	if got := sameSID([]Exit{a, b}); got != nil {
		t.Errorf("got %v of two families", got)
	}
	got := sameSID([]Exit{a, b, c})
	if len(got) != 1 || got[0].Outcome != Failed || got[0].Exit != "c" || got[0].Found != "SID fc00:1:: is that of exit a, too: what leaves by one leaves by the other" || got[0].Do == "" {
		t.Errorf("got %v", got)
	}
}

// Nothing is sent to this host itself through an exit.
func TestElsewhere(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil || len(own) == 0 {
		t.Fatal(err)
	}
	here, _ := netip.AddrFromSlice(own[0].(*net.IPNet).IP)
	here = here.Unmap()
	in := Input{Exits: []Exit{{Samples: []Sample{{Prefix: netip.PrefixFrom(here, here.BitLen())}, {Prefix: netip.MustParsePrefix("2001:db8::/32")}}}}}
	got, err := elsewhere(func() (Input, error) { return in, nil })()
	if err != nil || len(got.Exits[0].Samples) != 1 || got.Exits[0].Samples[0].Prefix.Bits() != 32 || len(in.Exits[0].Samples) != 2 {
		t.Errorf("got %v, %v", got.Exits[0].Samples, err)
	}
}

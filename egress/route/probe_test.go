package route

import (
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"plait.dev/plait/internal/rung"
)

// The kernel these tests run on has all that is needed, or the others would fail; trying that changes nothing for the host.
func TestProbe(t *testing.T) {
	rung.Netns(t)
	before, err := exec.Command("sh", "-c", "ip rule; ip route show table all; ip -6 rule; ip -6 route show table all; ip -br addr").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	abilities := Probe()
	for _, a := range abilities {
		if a.Err != nil {
			t.Errorf("%s: %v", a.Name, a.Err)
		}
	}
	if len(abilities) != 12 {
		t.Errorf("tried %v", abilities)
	}
	after, err := exec.Command("sh", "-c", "ip rule; ip route show table all; ip -6 rule; ip -6 route show table all; ip -br addr").CombinedOutput()
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("%v: before\n%s\nafter\n%s", err, before, after)
	}
}

// What an older or smaller kernel says becomes advice.
func TestAdvice(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.EOPNOTSUPP: "operation not supported (words); the kernel lacks SRv6: it needs CONFIG_IPV6_SEG6_LWTUNNEL and CONFIG_LWTUNNEL",
		unix.EPERM:      "operation not permitted (words); this needs root or the capability CAP_NET_ADMIN",
		unix.EINVAL:     "invalid argument (words)",
	} {
		k := &Kernel{}
		err := k.note(settle(request{Add, kernelRule{}, "missing"}, refusal{&netlink.OpError{Err: errno, Message: "words."}}))
		if want = "add rule 0: from invalid IP lookup 0: " + want; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Whatever the kernel sends, reading it ends.
func FuzzRead(f *testing.F) {
	for _, o := range []object{
		kernelRoute{place: placeOf(101, netip.MustParsePrefix("2001:db8::/32"), Metric), nexthop: firstNexthop},
		kernelRoute{place: placeOf(254, netip.MustParsePrefix("192.0.2.0/24"), Metric), gateway: hops6[0], link: 2},
		kernelRule{source: plain, table: 101, priority: LookupPriority}, kernelAddress{plain, 2}, kernelNexthop{way{unix.AF_INET6, sids6[0], 2}, firstNexthop},
	} {
		f.Add(o.request(nil, Add).Data)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, _, ok := readRoute(b); ok && !r.prefix().IsValid() {
			t.Errorf("read %v", r)
		}
		if r, _, ours := readRule(b); ours && !r.source.IsValid() {
			t.Errorf("read %v", r)
		}
		if a, _, ours := readAddress(b); ours && !a.address.IsValid() {
			t.Errorf("read %v", a)
		}
		if w, _, ours := readNexthop(b); ours && !w.sid.IsValid() {
			t.Errorf("read %v", w)
		}
	})
}

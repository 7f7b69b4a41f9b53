package daemon

import (
	"net/netip"
	"testing"
	"time"

	"plait.dev/plait/egress"
)

// What an exit that fails clients in as many prefixes costs every second, when it is asked what comes back: for each prefix of ten thousand, and of a hundred beside it.
func BenchmarkAside(b *testing.B) {
	each := func(many int) (ns float64) {
		x := choosing(b, Service{egress.Throughput, 0})
		now := time.Now()
		for i := range many {
			client := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 6: byte(i >> 8), 7: byte(i)})
			x.health.Fail("a", client, now)
			prefix, _ := client.Prefix(64)
			x.aside[putAside{prefix, "a"}] = now
		}
		begin, rounds := time.Now(), 0
		for ; time.Since(begin) < 100*time.Millisecond; rounds++ {
			x.returns(egress.Ails(x.health.Patients()), now)
		}
		return float64(time.Since(begin).Nanoseconds()) / float64(rounds*many)
	}
	for b.Loop() {
		few, all := each(100), each(10_000)
		b.ReportMetric(few, "hundred-ns/prefix")
		b.ReportMetric(all, "ns/prefix")
		b.ReportMetric(all/few, "times-hundred")
	}
}

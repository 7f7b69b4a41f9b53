package route

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/egress"
)

// BenchmarkRoutes puts 100,000 routes into an exit's table, reads them back, and takes them away, by plait and by ip -batch, which
// sends them one by one; the routes are the same.
func BenchmarkRoutes(b *testing.B) {
	const total = 100_000
	n := newNetwork(b)
	for _, family := range []string{"IPv6", "IPv4"} {
		entries := make([]egress.Entry, total)
		var add, remove strings.Builder
		for i := range entries {
			prefix := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x24, 0, byte(i >> 16), byte(i >> 8), byte(i)}), 48)
			if family == "IPv4" {
				prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{20 + byte(i>>16), byte(i >> 8), byte(i)}), 24)
			}
			entries[i] = egress.Entry{Table: 101, Prefix: prefix, SID: sids6[0]}
			fmt.Fprintf(&add, "route add %v nhid 9 table 101 proto 112 metric 4112\n", prefix)
			fmt.Fprintf(&remove, "route del %v table 101 proto 112 metric 4112\n", prefix)
		}
		changes := func(add bool) []egress.Change {
			out := make([]egress.Change, total)
			for i := range entries {
				if add {
					out[i].New = &entries[i]
				} else {
					out[i].Old = &entries[i]
				}
			}
			return out
		}
		k := n.kernel(nil)
		n.must(k.Reconcile(slices.Values([]egress.Entry(nil))))
		n.ip(fmt.Sprintf("-n %s %s nexthop add id 9 dev s1 encap seg6 mode encap segs %v", n.server, map[string]string{"IPv6": "-6", "IPv4": "-4"}[family], sids6[0]))
		announce, withdraw := func() { n.must(k.Apply(changes(true))) }, func() { n.must(k.Apply(changes(false))) }
		nothing := func() {}
		for _, c := range []struct {
			name             string
			before, run, end func()
		}{
			{"plait/add", nothing, announce, withdraw},
			{"plait/reconcile", announce, func() { n.must(k.Reconcile(slices.Values(entries))) }, withdraw},
			{"plait/delete", announce, withdraw, nothing},
			{"ip/add", nothing, func() { n.batch(add.String()) }, withdraw},
			{"ip/delete", announce, func() { n.batch(remove.String()) }, nothing},
		} {
			b.Run(family+"/"+c.name, func(b *testing.B) {
				b.StopTimer()
				spent := time.Duration(0)
				for range b.N {
					c.before()
					b.StartTimer()
					begin := n.spent()
					c.run()
					spent += n.spent() - begin
					b.StopTimer()
					c.end()
				}
				b.ReportMetric(total*float64(b.N)/b.Elapsed().Seconds(), "routes/s")
				b.ReportMetric(float64(spent.Nanoseconds())/total/float64(b.N), "cpu-ns/route")
				b.ReportMetric(0, "ns/op")
			})
		}
		n.must(k.Remove())
		n.ip("-n " + n.server + " nexthop del id 9")
	}
}

// spent is the processor time of this process and its children, in the kernel too: what others do on the machine does not make it longer.
func (n *network) spent() (sum time.Duration) {
	n.Helper()
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var usage unix.Rusage
		n.must(unix.Getrusage(who, &usage))
		sum += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return sum
}

// batch gives commands to ip.
func (n *network) batch(commands string) {
	n.Helper()
	file := filepath.Join(n.TempDir(), "batch")
	n.must(os.WriteFile(file, []byte(commands), 0o600))
	if out, err := exec.Command("ip", "-n", n.server, "-batch", file).CombinedOutput(); err != nil {
		n.Fatalf("ip -batch: %v: %s", err, out)
	}
}

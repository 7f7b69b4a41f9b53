package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/daemon"
)

// What there is to know of a receiver without connections, and of a sender that is none; and that a way's round trip is an old one.
func TestPrintAckpath(t *testing.T) {
	now := time.Now()
	ways := func(used time.Time) []daemon.AckWayStatus {
		return []daemon.AckWayStatus{{Link: "lte", Source: netip.MustParseAddr("198.51.100.7"), Server: netip.MustParseAddr("192.0.2.1"), RTTMs: 30, Fair: true, Used: used}}
	}
	for want, s := range map[string]daemon.AckpathStatus{
		"receiver: no MPTCP connection has received":                         {Mode: daemon.Observe},
		"receiver: list TCP sockets: no such file":                           {Mode: daemon.On, Trouble: "list TCP sockets: no such file"},
		"copies are not taken: port in use":                                  {Mode: daemon.Off, Silent: "port in use"},
		"this kernel can copy no ACKs: no tcx":                               {Mode: daemon.On, Lacks: "no tcx"},
		"way to 192.0.2.1 over lte from 198.51.100.7: no connection for 25s": {Mode: daemon.On, Ways: ways(now.Add(-25 * time.Second))},
		"way to 192.0.2.1 over lte from 198.51.100.7: 30.0 ms":               {Mode: daemon.On, Ways: ways(now)},
	} {
		var out strings.Builder
		printAckpath(&out, s, now)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%+v: got\n%s\nwant %q", s, out.String(), want)
		}
	}
}

// A lead that is not known is not told.
func TestExplainAckpath(t *testing.T) {
	ends := netip.MustParseAddrPort("192.0.2.1:443")
	for lead, want := range map[float64]string{0: "7 arrived, 1 of them late\n", 80: "7 arrived, 1 of them late, 80.0 ms before their twins\n"} {
		var out strings.Builder
		explainAckpath(&out, daemon.AckpathStatus{Mode: daemon.On, Flows: []daemon.AckFlowStatus{{Local: ends, Remote: ends, Copies: 9, Arrived: 7, Late: 1, LeadMs: lead}}}, time.Now())
		if !strings.HasSuffix(out.String(), want) {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}

package main

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/daemon"
)

// The view of the exits, on a screen that is too small for all.
func TestDrawExits(t *testing.T) {
	v := view{Status: standIn{}.Status()}
	now := v.UpSince.Add(90 * time.Second)
	v.traffic = daemon.EgressTraffic{
		Seconds: 1.02,
		Exits: []daemon.NamedTraffic{
			{Exit: "transit-a", TrafficStatus: daemon.TrafficStatus{Flows: 3, GoodputMbps: 60, SharePercent: 75, RTTMs: 20.04, LossPercent: 0.5, AckedBytes: 4e6}},
			{Exit: "", TrafficStatus: daemon.TrafficStatus{Flows: 0, GoodputMbps: 20, SharePercent: 25}},
		},
		Networks: []daemon.NetworkStatus{{Prefix: netip.MustParsePrefix("2001:db8:c::/48"), Exit: "transit-a", Flows: 3, GoodputMbps: 60, RTTMs: 20, LossPercent: 0.5}, {GoodputMbps: 20}, {}, {}, {}},
		Active:   101,
	}
	for port := range uint16(100) {
		v.traffic.Flows = append(v.traffic.Flows, daemon.FlowStatus{Local: netip.MustParseAddrPort("[2001:db8:1::a]:443"),
			Client: netip.AddrPortFrom(netip.MustParseAddr("2001:db8:c::7"), 50000+port), Exit: "transit-a", GoodputMbps: 20, RTTMs: 20, SentSegments: 1700, Resent: 1})
	}
	const height = 18
	got := strings.Split(strings.TrimSuffix(strings.TrimPrefix(draw(v, true, now, 200, height), home), clearLine+clearBelow), clearLine+"\r\n")
	want := strings.Split(`plait 1.2.3, up for 1m30s
BGP exits: mode observe, 3 exits, 1 of 2 sessions with route reflectors up, 1200 routes told; plait egress exits and sessions have more
warning: something is odd
EXIT       FLOWS  GOODPUT Mbit/s  SHARE %  RTT ms  SENT AGAIN %  SENT MB
transit-a  3      60.0            75       20.0    0.50          4.0
-          0      20.0            25       -       0.00          0.0

Client networks, of the last half minute:
PREFIX           EXIT       FLOWS  GOODPUT Mbit/s  RTT ms  SENT AGAIN %
2001:db8:c::/48  transit-a  3      60.0            20.0    0.50
-                -          0      20.0            -       0.00

Flows, of the last 1.0 s:
LOCAL                CLIENT                 EXIT       GOODPUT Mbit/s  RTT ms  SEGMENTS  SENT AGAIN
[2001:db8:1::a]:443  [2001:db8:c::7]:50000  transit-a  20.0            20.0    1700      1
[2001:db8:1::a]:443  [2001:db8:c::7]:50001  transit-a  20.0            20.0    1700      1
and 99 more; plait egress flows has all
q: quit  e: connections`, "\n")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(got) > height {
		t.Errorf("%d lines, the screen has %d", len(got), height)
	}
	v.unseen = errors.New("flows are not watched")
	if text := draw(v, true, now, 200, height); !strings.Contains(text, "flows are not watched") || strings.Contains(text, "GOODPUT") {
		t.Errorf("without traffic: %q", text)
	}
}

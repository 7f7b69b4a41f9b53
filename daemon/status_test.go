package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"plait.dev/plait/egress/mptcp"
)

func connection(cookie uint64, local, remote string) SocketStatus {
	return SocketStatus{Cookie: cookie, Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote)}
}

func TestFindSocket(t *testing.T) {
	all := []SocketStatus{
		connection(0x1a, "192.0.2.1:443", "198.51.100.7:50000"),
		connection(0x1b, "192.0.2.1:443", "198.51.100.8:50000"),
		connection(16, "[2001:db8::1]:22", "[2001:db8::2]:1024"),
	}
	for name, want := range map[string]uint64{
		"198.51.100.7:50000":                            0x1a,
		"192.0.2.1:443-198.51.100.8:50000":              0x1b,
		"198.51.100.8:50000-192.0.2.1:443":              0x1b,
		"[2001:db8::1]:22":                              16,
		"[2001:db8::1]:22-[2001:db8::2]:1024":           16,
		"[::ffff:198.51.100.7]:50000":                   0x1a, // as ss shows the end of a socket that speaks IPv6, too
		"198.51.100.7%vrf-a:50000":                      0x1a, // and of one that is bound to a device
		"[2001:db8::1%eth0]:22":                         16,
		"[2001:db8::1]%eth0:22-[2001:db8::2]%eth0:1024": 16,
		"sk:1a": 0x1a,
		"1b":    0x1b,
		"10":    16, // ss shows hexadecimal
	} {
		if s, err := (Status{Sockets: all}).FindSocket(name); err != nil || s.Cookie != want {
			t.Errorf("%s: got sk:%x, %v, want sk:%x", name, s.Cookie, err, want)
		}
	}
	for name, want := range map[string]string{
		"192.0.2.9:1": "find socket 192.0.2.9:1: no such connection that plait manages; plait status lists those",
		"192.0.2.1:443": "find socket 192.0.2.1:443: 2 connections have this end; name one of them:\n" +
			"  192.0.2.1:443-198.51.100.7:50000 (sk:1a)\n  192.0.2.1:443-198.51.100.8:50000 (sk:1b)",
		"sk:2":                       "find socket sk:2: no such connection that plait manages; plait status lists those",
		"sk:0":                       `socket "sk:0": expected an end like`,
		"nginx":                      `socket "nginx": expected an end like`,
		"":                           `socket "": expected an end like`,
		"192.0.2.1:443-198.51.100.8": `socket "192.0.2.1:443-198.51.100.8": expected an end like`,
	} {
		_, err := Status{Sockets: all}.FindSocket(name)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got  %v\nwant %s", name, err, want)
		}
		if errors.Is(err, ErrNoSocket) != strings.Contains(want, "no such connection") {
			t.Errorf("%q: that it is ErrNoSocket is %v", name, errors.Is(err, ErrNoSocket))
		}
	}
}

// Of many connections with one end some are named, and it is said that these are not all.
func TestFindSocketAmongMany(t *testing.T) {
	var many Status
	for cookie := range uint64(maxNamed + 2) {
		many.Sockets = append(many.Sockets, connection(0x1a+cookie, "192.0.2.1:443", fmt.Sprintf("198.51.100.7:%d", 50000+cookie)))
	}
	_, err := many.FindSocket("192.0.2.1:443")
	if err == nil {
		t.Fatal("one of 7 connections was found by the end they share")
	}
	lines := strings.Split(err.Error(), "\n")
	if got, want := lines[len(lines)-1], "  and 2 more; plait status --json has all"; got != want || len(lines) != 1+maxNamed+1 {
		t.Errorf("got %d lines, the last one %q, want %q", len(lines), got, want)
	}
}

// A connection is told with the comparison of its own destination and rule.
func TestFindSocketDestination(t *testing.T) {
	k := connection(0x1a, "192.0.2.1:443", "198.51.100.7:50000")
	k.Policy, k.Rule = "plait", "port 443"
	s := Status{Sockets: []SocketStatus{k}, Prefixes: []PrefixStatus{
		{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Policy: "plait"},
		{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Policy: "plait", Rule: "port 443"},
	}}
	if found, err := s.FindSocket("sk:1a"); err != nil || found.Destination != nil {
		t.Errorf("got %+v, %v, want no destination: there are those of another rule and prefix alone", found.Destination, err)
	}
	s.Prefixes = append(s.Prefixes, PrefixStatus{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Policy: "plait", Rule: "port 443"})
	if found, err := s.FindSocket("sk:1a"); err != nil || found.Destination == nil || found.Destination.Rule != "port 443" {
		t.Errorf("got %+v, %v, want the destination", found.Destination, err)
	}
}

func TestNewGroup(t *testing.T) {
	g := NewGroup(Histogram{Connections: 2, Counts: counts(map[int]uint64{16: 4})}, 1000) // 1.024 to 1.280 ms
	if g.Connections != 2 || g.Bursts != 4 || g.Bytes != 1000 {
		t.Errorf("got %+v, want 2 connections, 4 bursts, 1000 bytes", g)
	}
	near(t, "mean", g.MeanMs, 1.024*math.Exp2(5./32))
	near(t, "p50", g.P50Ms, math.Sqrt(1.024*1.280))
	near(t, "p95", g.P95Ms, 1.024*math.Pow(1.25, 0.95))
}

// JSON has neither infinities nor NaN: without bursts, or with few, the status must still be told.
func TestStatusJSON(t *testing.T) {
	few := Histogram{Connections: 1, Counts: []uint64{1}}
	for _, h := range []Histogram{{}, few} {
		s := Status{Prefixes: []PrefixStatus{{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Managed: NewGroup(h, 0), Holdout: NewGroup(few, 0), Difference: Compare(h, few)}}}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `"prefix":"192.0.2.0/24"`) || !strings.Contains(string(text), `"verdict":"unclear"`) {
			t.Errorf("got %s", text)
		}
	}
}

// An interface that is not there is told; where egress is off nobody needs it.
func TestUnplugged(t *testing.T) {
	want := "the section egress names interface nosuch, which cannot be found (route ip+net: no such network interface): plait needs it for the addresses of the exits"
	for x, want := range map[struct {
		mode Mode
		name string
	}]string{{Observe, "nosuch"}: want, {On, "nosuch"}: want, {Off, "nosuch"}: "", {On, "lo"}: "", {"", ""}: ""} {
		if got := (Egress{Mode: x.mode, Interface: x.name}).unplugged(); got != want {
			t.Errorf("%+v: got %q, want %q", x, got, want)
		}
	}
}

// That MPTCP is off is told where the exits are in use, or ACKs are copied.
func TestAlone(t *testing.T) {
	lacks := []mptcp.Lack{{What: "MPTCP is switched off", Do: "switch it on", Fatal: true}}
	want := "connections have BGP's best path alone: MPTCP is switched off; switch it on"
	for mode, want := range map[Mode]string{On: want, Observe: "", Off: "", "": ""} {
		if got := (Egress{Mode: mode}).alone(lacks); got != want {
			t.Errorf("mode %q: got %q, want %q", mode, got, want)
		}
	}
	if got := (Egress{Mode: On}).alone(nil); got != "" {
		t.Errorf("with MPTCP: got %q, want nothing", got)
	}
	want = "no ACKs are copied: MPTCP is switched off; switch it on"
	for mode, want := range map[Mode]string{On: want, Observe: want, Off: ""} {
		if got := (Ackpath{Mode: mode}).idle(lacks); got != want {
			t.Errorf("ackpath, mode %q: got %q, want %q", mode, got, want)
		}
	}
}

// What the kernel cannot do is told where it matters: that flows are not watched with the lever alone, that a registration stays where there is one.
func TestLacking(t *testing.T) {
	const reason = "attach: use Linux 6.6 or newer"
	if got := (&exits{unwatched: reason}).blind(); !strings.HasPrefix(got, "flows are not watched, ") || !strings.HasSuffix(got, ": "+reason) {
		t.Errorf("got %q, want that flows are not watched, and why", got)
	}
	if got := (*exits)(nil).blind() + (&exits{}).blind(); got != "" {
		t.Errorf("got %q without the lever, and where flows are watched", got)
	}
	for k, want := range map[*kernel]bool{{linked: true, takes: true}: false, {takes: true}: true, {}: false} {
		if got := k.outlasting(); (got != "") != want {
			t.Errorf("linked %v, takes %v: %q", k.linked, k.takes, got)
		}
	}
}

// That nothing can be compared is of no interest where no connection is taken.
func TestUntimed(t *testing.T) {
	c, refusal := DefaultConfig(), errors.New("no tracing\nof anything")
	if got := c.untimed(refusal); !strings.HasSuffix(got, ": no tracing") {
		t.Errorf("got %q, want the reason", got)
	}
	if got := c.untimed(nil); got != "" {
		t.Errorf("got %q of a kernel that can", got)
	}
	c.Congestion.Mode = Off
	if got := c.untimed(refusal); got != "" {
		t.Errorf("got %q with congestion off", got)
	}
}

package check

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"plait.dev/plait/lab/netns"
)

// Each code of a refusal is told, and what is to be done fits it.
func TestRefusals(t *testing.T) {
	ask6, err := request(here, there, 4711, 12, smallPacket)
	if err != nil {
		t.Fatal(err)
	}
	ask4, err := request(here4, there4, 4711, 12, smallPacket)
	if err != nil {
		t.Fatal(err)
	}
	inner6, inner4 := packet6(here, there, 3, ask6), make([]byte, header4)
	inner4[0], inner4[9] = 4<<4|5, protocolICMP
	copy(inner4[16:], there4.AsSlice())
	inner4 = append(inner4, ask4...)
	for _, c := range []struct {
		is4         bool
		code        int
		says        string
		inside, out string
	}{
		{false, 0, "has no route to", doBehind, doSID},
		{false, 1, "prohibits packets to", doFilter, doSRv6},
		{false, 2, "has no route to", doBehind, doSID},
		{false, 3, "gets no answer on its link from", doPeer, doRouter},
		{false, 4, "rejects packets to", doFilter, doEnd},
		{false, 5, "lets no packets from this address pass to", doFilter, doSRv6},
		{false, 6, "prohibits packets to", doFilter, doSRv6},
		{true, 0, "has no route to", doBehind, ""},
		{true, 1, "cannot reach", doBehind, ""},
		{true, 2, "rejects packets to", doFilter, ""},
		{true, 3, "rejects packets to", doFilter, ""},
		{true, 6, "has no route to", doBehind, ""},
		{true, 9, "prohibits packets to", doFilter, ""},
		{true, 10, "prohibits packets to", doFilter, ""},
		{true, 13, "prohibits packets to", doFilter, ""},
	} {
		m, to := icmp.Message{Type: ipv6.ICMPTypeDestinationUnreachable, Code: c.code, Body: &icmp.DstUnreach{Data: inner6}}, there
		if c.is4 {
			m.Type, m.Body, to = ipv4.ICMPTypeDestinationUnreachable, &icmp.DstUnreach{Data: inner4}, there4
		}
		h := read(marshal(t, m), c.is4)
		got := trace{{heard: h, packet: packet{to: to, hopLimit: 3}, from: here}}.decapsulates("a", "SID", []netip.Addr{to})
		if last := got[len(got)-1]; last.Outcome != Failed || !strings.Contains(last.Found, c.says+" "+to.String()) || last.Do != c.inside {
			t.Errorf("IPv4 %v, code %d, inside: got %v, want %q and: %s", c.is4, c.code, last, c.says, c.inside)
		}
		if c.is4 {
			continue
		}
		h.outer, h.about = true, sid
		got = trace{{heard: h, from: here}}.decapsulates("a", "SID", []netip.Addr{to})
		if len(got) != 1 || !strings.Contains(got[0].Found, c.says+" "+sid.String()) || got[0].Do != c.out {
			t.Errorf("code %d, outside: got %v, want %q and: %s", c.code, got, c.says, c.out)
		}
	}
}

// A router that keeps packets for itself is told from a destination that does.
func TestKept(t *testing.T) {
	border, peer, client := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8::3")
	one, two := packet{to: there, hopLimit: 3}, packet{to: there.Next(), hopLimit: 3}
	on := func(from netip.Addr, k kind, r refusal, about packet) answer {
		return answer{heard{kind: k, refusal: r}, about, from}
	}
	near := on(border, expired, 0, packet{to: there, hopLimit: 1})
	for name, c := range map[string]struct {
		t    trace
		want Outcome
	}{
		"its source is not taken":           {trace{near, on(peer, unreachable, badSource, one), on(peer, unreachable, badSource, two)}, Failed},
		"one destination does not take it":  {trace{near, on(client, unreachable, badSource, one), on(peer, expired, 0, two)}, OK},
		"another destination's is":          {trace{near, on(peer, unreachable, badSource, one), on(client, reply, 0, two)}, OK},
		"all are prohibited by one":         {trace{near, on(peer, unreachable, prohibited, one), on(peer, unreachable, rejected, two)}, Unknown},
		"each is by another":                {trace{near, on(peer, unreachable, prohibited, one), on(client, unreachable, prohibited, two)}, OK},
		"one is":                            {trace{near, on(peer, unreachable, prohibited, one), on(peer, expired, 0, two)}, OK},
		"nobody has a route to the clients": {trace{near, on(peer, unreachable, noRoute, one), on(peer, unreachable, noRoute, two)}, OK},
	} {
		got := c.t.decapsulates("a", "SID", []netip.Addr{one.to, two.to})
		if last := got[len(got)-1]; last.Check != "forward" || last.Outcome != c.want || (last.Do == doFilter) != (c.want != OK) {
			t.Errorf("%s: got %v, want %v", name, last, c.want)
		}
	}
}

// A target that replies at once is no crowd of routers.
func TestReplies(t *testing.T) {
	got := trace{{heard{kind: reply}, packet{to: there, hopLimit: 1}, there}}.decapsulates("a", "SID", []netip.Addr{there})
	if last := got[len(got)-1]; last.Outcome != OK || last.Found != "SID: 2001:db8:c000::1 replies" {
		t.Errorf("got %v", last)
	}
}

// What the host's own firewall drops is not to be looked for in its routes.
func TestUnsent(t *testing.T) {
	if got := unsent(fmt.Errorf("send: %w", syscall.EPERM), reinstall); got != doHost {
		t.Errorf("got %s", got)
	}
	if got := unsent(fmt.Errorf("send: %w", syscall.ENETUNREACH), reinstall); got != reinstall {
		t.Errorf("got %s", got)
	}
}

// Routers refuse in every way, and each is told with what to do about it.
func TestRefused(t *testing.T) {
	n := newNetwork(t)
	for _, ns := range []string{n.inner, n.border} {
		n.must(netns.Do(ns, func() error { return os.WriteFile("/proc/sys/net/ipv6/neigh/east/retrans_time_ms", []byte("100"), 0) }))
	}
	for _, c := range []struct {
		ns, route   string
		check, says string
		do          string
	}{
		{n.inner, "prohibit " + sid6, "answer", "2001:db8:1::1 on the way to the SID says that it prohibits packets to " + sid6, doSRv6},
		{n.inner, "unreachable " + sid6, "answer", "2001:db8:1::1 on the way to the SID says that it has no route to " + sid6, doSID},
		{n.inner, sid6 + " via 2001:db8:2::77", "answer", "2001:db8:1::1 on the way to the SID says that it gets no answer on its link from " + sid6, doRouter},
		{n.inner, sid6 + " via 2001:db8:1::10", "answer", "on the way to the SID they go round in a loop, in which 2001:db8:1::1", doLoop},
		{n.peer, "prohibit 2001:db8:c000::/34", "forward", "2001:db8:3::1 prohibits packets to 2001:db8:c000::1: packets end there", doFilter},
		{n.border, "default via 2001:db8:3::77 table 10", "forward", "2001:db8:2::1 gets no answer on its link from 2001:db8:c000::1, or from the next hop there", doPeer},
	} {
		before, after := "del", ""
		switch c.ns {
		case n.peer:
			before, after = "replace", "2001:db8:c000::/34 via 2001:db8:4::1"
		case n.border:
			before, after = "replace", "default via 2001:db8:3::1 table 10"
		default:
			after = c.route
		}
		n.ip("-n %s -6 route replace %s", c.ns, c.route)
		found := false
		for _, r := range n.run() {
			if r.Check == c.check && r.Outcome == Failed {
				if found = strings.Contains(r.Found, c.says); !found || r.Do != c.do {
					t.Errorf("%s: got %s: to do: %s; want %s: to do: %s", c.route, r.Found, r.Do, c.says, c.do)
				}
			}
		}
		if !found {
			t.Errorf("%s: nothing failed", c.route)
		}
		n.ip("-n %s -6 route %s %s", c.ns, before, after)
	}
}

// Of the setting for all interfaces and that of one the higher one counts.
func TestStrict(t *testing.T) {
	for all, want := range map[string]string{"0": "[one]", "1": "[none one unset]", "2": "[]"} {
		dir := t.TempDir()
		for link, value := range map[string]string{"all": all, "none": "0", "one": "1", "loose": "2"} {
			if err := errors.Join(os.Mkdir(filepath.Join(dir, link), 0o700), os.WriteFile(filepath.Join(dir, link, "rp_filter"), []byte(value+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(strict(dir, []string{"none", "one", "loose", "unset"})); got != want {
			t.Errorf("all %s: got %s, want %s", all, got, want)
		}
	}
}

// Answers come in by an interface that takes no packets from addresses whose way leads elsewhere.
func TestReversePath(t *testing.T) {
	n := newNetwork(t)
	strict := func(link string) {
		n.must(netns.Do(n.server, func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/"+link+"/rp_filter", []byte("1"), 0) }))
	}
	strict("east")
	n.want(n.run(), map[string][]Outcome{"answer": {OK, OK}, "best path": {OK, OK}})
	n.ip("-n %s link add other type veth peer name other netns %s", n.server, n.inner)
	n.ip("-n %s link set other up", n.server)
	n.ip("-n %s link set other up", n.inner)
	n.ip("-n %s addr add 10.0.9.10/24 dev other", n.server)
	n.ip("-n %s addr add 10.0.9.1/24 dev other", n.inner)
	n.ip("-n %s route replace %s via 10.0.9.10", n.inner, exit4)
	n.want(n.run(), map[string][]Outcome{"answer": {OK, OK}})
	strict("other")
	out := n.run()
	n.want(out, map[string][]Outcome{"answer": {OK, Failed}})
	if text := found(out, "answer"); !strings.Contains(text, "other has rp_filter 1") {
		t.Errorf("got %s", text)
	}
}

package check

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

var (
	here   = netip.MustParseAddr("2001:db8:1::a")
	there  = netip.MustParseAddr("2001:db8:c000::1")
	sid    = netip.MustParseAddr("fc00:1::")
	here4  = netip.MustParseAddr("203.0.113.1")
	there4 = netip.MustParseAddr("198.51.100.1")
)

func marshal(t testing.TB, m icmp.Message) []byte {
	t.Helper()
	var pseudo []byte
	if m.Type.Protocol() == protocolICMPv6 {
		pseudo = icmp.IPv6PseudoHeader(here.AsSlice(), here.AsSlice())
	}
	b, err := m.Marshal(pseudo)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// messages are what an error message or an answer may look like, and what is to be read in it.
func messages(t testing.TB) map[string]struct {
	b    []byte
	is4  bool
	want heard
} {
	t.Helper()
	ask6, err := request(here, there, 4711, 12, 1500)
	if err != nil {
		t.Fatal(err)
	}
	inner := packet6(here, there, 3, ask6)
	outer := packet6(here, sid, 3, inner)
	outer[6] = protocolIPv6
	routed := slices.Clone(outer[:header6])
	routed[6] = protocolRouting
	routed = append(append(routed, protocolIPv6, 2, 4, 0), make([]byte, 20)...)
	routed = append(routed, inner...)
	ask4, err := request(here4, there4, 4711, 12, 1500)
	if err != nil {
		t.Fatal(err)
	}
	inner4 := make([]byte, header4+4, 100) // with an option
	inner4[0], inner4[9] = 4<<4|6, protocolICMP
	copy(inner4[16:], there4.AsSlice())
	inner4 = append(inner4, ask4[:headerEcho]...)
	needed := marshal(t, icmp.Message{Type: ipv4.ICMPTypeDestinationUnreachable, Code: 4, Body: &icmp.DstUnreach{Data: inner4}})
	binary.BigEndian.PutUint16(needed[6:], 1400)
	other := slices.Clone(inner)
	other[6] = 6 // TCP
	return map[string]struct {
		b    []byte
		is4  bool
		want heard
	}{
		"a reply":                       {marshal(t, icmp.Message{Type: ipv6.ICMPTypeEchoReply, Body: &icmp.Echo{ID: 4711, Seq: 12}}), false, heard{kind: reply, id: 4711, number: 12}},
		"somebody's request":            {marshal(t, icmp.Message{Type: ipv6.ICMPTypeEchoRequest, Body: &icmp.Echo{ID: 4711, Seq: 12}}), false, heard{}},
		"a hop limit":                   {marshal(t, icmp.Message{Type: ipv6.ICMPTypeTimeExceeded, Body: &icmp.TimeExceeded{Data: inner[:60]}}), false, heard{kind: expired, about: there, id: 4711, number: 12}},
		"too big":                       {marshal(t, icmp.Message{Type: ipv6.ICMPTypePacketTooBig, Body: &icmp.PacketTooBig{MTU: 1400, Data: inner}}), false, heard{kind: tooBig, mtu: 1400, about: there, id: 4711, number: 12}},
		"too big, around it":            {marshal(t, icmp.Message{Type: ipv6.ICMPTypePacketTooBig, Body: &icmp.PacketTooBig{MTU: 1500, Data: outer}}), false, heard{kind: tooBig, mtu: 1500, about: sid, id: 4711, number: 12, outer: true}},
		"too big, around it and an SRH": {marshal(t, icmp.Message{Type: ipv6.ICMPTypePacketTooBig, Body: &icmp.PacketTooBig{MTU: 1500, Data: routed}}), false, heard{kind: tooBig, mtu: 1500, about: sid, id: 4711, number: 12, outer: true}},
		"hardly more than the SRH":      {marshal(t, icmp.Message{Type: ipv6.ICMPTypePacketTooBig, Body: &icmp.PacketTooBig{MTU: 1500, Data: routed[:header6+8]}}), false, heard{kind: tooBig, mtu: 1500, about: sid, outer: true}},
		"no header like that":           {marshal(t, icmp.Message{Type: ipv6.ICMPTypeParameterProblem, Code: 1, Body: &icmp.ParamProb{Data: routed}}), false, heard{kind: unreachable, refusal: rejected, about: sid, id: 4711, number: 12, outer: true}},
		"no route":                      {marshal(t, icmp.Message{Type: ipv6.ICMPTypeDestinationUnreachable, Body: &icmp.DstUnreach{Data: inner}}), false, heard{kind: unreachable, about: there, id: 4711, number: 12}},
		"about something else":          {marshal(t, icmp.Message{Type: ipv6.ICMPTypeTimeExceeded, Body: &icmp.TimeExceeded{Data: other}}), false, heard{}},
		"cut short":                     {marshal(t, icmp.Message{Type: ipv6.ICMPTypeTimeExceeded, Body: &icmp.TimeExceeded{Data: inner[:44]}}), false, heard{}},
		"a reply of IPv4":               {marshal(t, icmp.Message{Type: ipv4.ICMPTypeEchoReply, Body: &icmp.Echo{ID: 4711, Seq: 12}}), true, heard{kind: reply, id: 4711, number: 12}},
		"a time to live":                {marshal(t, icmp.Message{Type: ipv4.ICMPTypeTimeExceeded, Body: &icmp.TimeExceeded{Data: inner4}}), true, heard{kind: expired, about: there4, id: 4711, number: 12}},
		"fragmentation needed":          {needed, true, heard{kind: tooBig, mtu: 1400, about: there4, id: 4711, number: 12}},
		"no message":                    {nil, false, heard{}},
		"an error without quote":        {marshal(t, icmp.Message{Type: ipv6.ICMPTypeTimeExceeded, Body: &icmp.TimeExceeded{}}), false, heard{}},
	}
}

func TestRead(t *testing.T) {
	for name, m := range messages(t) {
		if got := read(m.b, m.is4); got != m.want {
			t.Errorf("%s: got %+v, want %+v", name, got, m.want)
		}
	}
}

// Whatever comes from the network, reading it does not panic, and what is told has a kind.
func FuzzRead(f *testing.F) {
	for _, m := range messages(f) {
		f.Add(m.b, m.is4)
	}
	f.Fuzz(func(t *testing.T, b []byte, is4 bool) {
		if h := read(b, is4); h.kind == nothing && h != (heard{}) {
			t.Errorf("%+v says nothing and has something", h)
		}
	})
}

// A destination to send to is in the prefix, and none is made up where there is none.
func TestTarget(t *testing.T) {
	for prefix, want := range map[string]string{"2001:db8::/32": "2001:db8::1", "2001:db8::7/128": "2001:db8::7", "198.51.100.0/24": "198.51.100.1", "::/0": "", "0.0.0.0/0": "", "ff00::/8": ""} {
		a, usable := Sample{Prefix: netip.MustParsePrefix(prefix)}.target()
		if usable != (want != "") || usable && a.String() != want {
			t.Errorf("%s: got %v, %v, want %q", prefix, a, usable, want)
		}
	}
}

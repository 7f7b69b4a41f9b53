package bgp

import (
	"slices"
	"testing"
)

// Distinguishers are known to others by their words: different ones have different words.
func TestDistinguisherWords(t *testing.T) {
	known := map[string][8]byte{}
	for rd, want := range map[[8]byte]string{
		{0, 0, 0xfd, 0xe8, 0, 0, 0, 11}:          "65000:11",
		{0, 2, 0, 0, 0xfd, 0xe8, 0, 11}:          "0.65000:11",
		{0, 0, 0xfd, 0xe8, 0xff, 0xff, 0xff, 11}: "65000:4294967051",
		{0, 2, 0, 0, 0xff, 0xff, 0, 11}:          "0.65535:11",
		{0, 2, 0, 1, 0, 0, 0, 11}:                "65536:11",
		{0, 2, 0xfa, 0x56, 0xea, 0, 0, 7}:        "4200000000:7",
		{0, 1, 0, 0, 0xfd, 0xe8, 0, 11}:          "0.0.253.232:11",
		{0, 0, 0, 0, 0, 0, 0, 0}:                 "0:0",
		{0, 2, 0, 0, 0, 0, 0, 0}:                 "0.0:0",
	} {
		got := distinguisherWords(rd)
		if got != want {
			t.Errorf("%x: got %s, want %s", rd, got, want)
		}
		if other, is := known[got]; is {
			t.Errorf("%x and %x are both %s", rd, other, got)
		}
		known[got] = rd
	}
}

// Two routes of one prefix, whose distinguishers are of the same numbers and of another type, are two.
func TestDistinguishersOfTwoTypes(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	w := watch(t, config(r))
	r.greet()
	one, two := vpn("2001:db8:c::/48"), vpn("2001:db8:c::/48")
	two.rd = "0.65000:11"
	r.say(one.message(t), two.message(t))
	w.has("2001:db8:c::/48", "2001:db8:c::/48")
	r.say(two.withdrawal(t))
	w.has("2001:db8:c::/48")
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.routes {
		if k.Distinguisher != "65000:11" {
			t.Errorf("the route of %s is left", k.Distinguisher)
		}
	}
}

// The parser does not keep the value of a distinguisher of a type it does not know. Such routes cannot be told apart, and none of them is used.
func TestDistinguisherOfUnknownType(t *testing.T) {
	raw := encode(t, vpn("2001:db8:c::/48", "2001:db8:d::/48").message(t), false)
	reach := attribute(t, raw, 14)
	rd := slices.Index(reach, 0xfd) - 2
	reach[rd+1] = 3
	changes, _, err := heard(t, raw, false)
	if err != nil || len(changes) != 2 || changes[0].refused != badDistinguisher || changes[1].refused != accepted {
		t.Errorf("got %+v, error %v", changes, err)
	}
}

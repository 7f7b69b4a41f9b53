package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"plait.dev/plait/stripe/measure"
)

// The links of this host, of which loopback is one, for programs; and measured ones, of which there may be none.
func TestLinksJSON(t *testing.T) {
	var out bytes.Buffer
	c := newLinks()
	c.SetOut(&out)
	c.SetArgs([]string{"--json"})
	type link struct {
		Name  string
		Addrs []netip.Prefix
	}
	var links []link
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &links); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	i := slices.IndexFunc(links, func(l link) bool { return l.Name == "lo" })
	if i < 0 || !slices.Contains(links[i].Addrs, netip.MustParsePrefix("127.0.0.1/8")) {
		t.Errorf("%s; want lo with 127.0.0.1/8", out.String())
	}
	out.Reset()
	if err := answered(&out, true, []measure.Link(nil), listMeasured); err != nil || out.String() != "[]\n" {
		t.Errorf("no links: %q, %v; want an empty list", out.String(), err)
	}
}

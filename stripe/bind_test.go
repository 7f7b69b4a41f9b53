package stripe

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/lab/netns"
)

// A link that no route leads over to the peer's address says so at once. For IPv4 the kernel would look for the peer on the link itself, for 3 s, and what the user hears
// first would be that a firewall may block TCP. A link with one other end needs no route: there the packet arrives.
func TestHostHasNoRoute(t *testing.T) {
	w := newWorld(t, TCP, 1, "20mbit")
	w.run("ip", "-n", w.client, "-6", "addr", "add", "fd78::1/64", "dev", "c0", "nodad")
	w.run("ip", "-n", w.client, "tuntap", "add", "mode", "tun", "dev", "p0")
	w.run("ip", "-n", w.client, "link", "set", "p0", "up")
	w.run("ip", "-n", w.client, "addr", "add", "10.79.0.1/32", "dev", "p0")
	for _, c := range []struct {
		link, from, to string
		none           bool
	}{
		{"c0", "10.78.0.1", "10.99.0.1:7", true}, {"c0", "fd78::1", "[fd99::1]:7", true}, {"p0", "10.79.0.1", "10.99.0.1:7", false}, {"c0", "10.78.0.1", "10.78.0.9:7", false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := netns.Do(w.client, func() error {
			_, err := tcpCarrier{}.dial(ctx, source{link: c.link, addr: netip.MustParseAddr(c.from)}, netip.MustParseAddrPort(c.to), nil)
			return err
		})
		cancel()
		if noRoute(err) != c.none || late(err) == c.none {
			t.Errorf("%s to %s: %v", c.link, c.to, err)
		}
		if text := TCP.explain(netip.MustParseAddrPort(c.to), errors.Join(err)).Error(); strings.Contains(text, "no route to the server") != c.none {
			t.Errorf("%s to %s: %s", c.link, c.to, text)
		}
	}
}

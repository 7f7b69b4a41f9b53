package daemon

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plait.dev/plait/egress"
)

// The doctor warns of a reverse path filter where exits have IPv4 addresses, and of the higher of its two settings.
func TestCheckReversePath(t *testing.T) {
	exit := func(addresses ...string) (out egress.Exit) {
		for _, a := range addresses {
			out.Addresses = append(out.Addresses, netip.MustParseAddr(a))
		}
		return out
	}
	both := Egress{Mode: Observe, Interface: "eth0.100", Exits: []egress.Exit{exit("2001:db8::a"), exit("2001:db8::b", "203.0.113.2")}}
	six, off := both, both
	six.Exits, off.Mode = both.Exits[:1], Off
	for _, c := range []struct {
		all, link string
		x         Egress
		want      Health // "": no such check
		says      string
	}{
		{"0", "0", both, OK, "0 on eth0.100"},
		{"0", "2", both, Warn, "2 on eth0.100"}, // as Debian 13 sets it
		{"2", "0", both, Warn, "2 on eth0.100"},
		{"1", "0", both, Warn, "1 on eth0.100"},
		{"", "", both, Warn, "not readable"},
		{"2", "2", six, "", ""},
		{"2", "2", off, "", ""},
		{"2", "2", Egress{}, "", ""},
	} {
		dir := t.TempDir()
		for link, value := range map[string]string{"all": c.all, "eth0.100": c.link, "default": "2"} {
			if value == "" {
				continue
			}
			if err := errors.Join(os.Mkdir(filepath.Join(dir, link), 0o700), os.WriteFile(filepath.Join(dir, link, "rp_filter"), []byte(value+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		got := checkReversePath(c.x, dir)
		if c.want == "" {
			if len(got) > 0 {
				t.Errorf("all %s, link %s: %+v, want no check", c.all, c.link, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Health != c.want || !strings.Contains(got[0].Found, c.says) || strings.Contains(got[0].Do, "net.ipv4.conf.eth0/100.rp_filter=0") != (c.want == Warn && c.all != "") {
			t.Errorf("all %s, link %s: %+v, want %s and %q", c.all, c.link, got, c.want, c.says)
		}
	}
}

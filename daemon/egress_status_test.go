package daemon

import "testing"

// An address stands for its prefix, also as ss shows IPv4 clients of servers that listen on IPv6.
func TestParsePrefix(t *testing.T) {
	for text, want := range map[string]string{"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8::1": "2001:db8::1/128", "2001:db8::1/32": "2001:db8::/32"} {
		if got, err := parsePrefix(text); err != nil || got.String() != want {
			t.Errorf("%s: got %v, %v; want %s", text, got, err, want)
		}
	}
}

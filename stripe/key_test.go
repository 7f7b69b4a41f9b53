package stripe

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// What fmt prints of a configuration, and slog logs of it as text, does not tell the key. JSON does: MarshalText is for keeping it.
func TestKeyIsNotPrinted(t *testing.T) {
	cfg := &Config{Key: NewKey()}
	seed := cfg.Key.key.Seed()
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%X", "%d", "%q"} {
		fmt.Fprintf(&out, verb+verb, cfg, cfg.Key)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("dial", "config", cfg)
	for _, secret := range []string{fmt.Sprintf("%x", seed[:8]), fmt.Sprintf("%X", seed[:8]), strings.Trim(fmt.Sprint(seed[:8]), "[]"), strings.Trim(fmt.Sprintf("%#v", seed[:8]), "[]byte{}")} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q is in %q", secret, out.String())
		}
	}
}

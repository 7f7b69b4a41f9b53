package stripe

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// What is printed or logged of a configuration does not tell the key, however it is done.
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

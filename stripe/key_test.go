package stripe

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// What fmt prints of a configuration or a key, slog logs of it, and JSON has of a configuration does not tell the key. Its own text does: that is for keeping it.
func TestKeyIsNotPrinted(t *testing.T) {
	cfg := &Config{Key: NewKey()}
	seed := cfg.Key.key.Seed()
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%X", "%d", "%q"} {
		fmt.Fprintf(&out, verb+verb, cfg, cfg.Key)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("dial", "config", cfg, "key", cfg.Key)
	}
	text, err := cfg.Key.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{string(text[:20]), fmt.Sprintf("%x", seed[:8]), fmt.Sprintf("%X", seed[:8]), strings.Trim(fmt.Sprint(seed[:8]), "[]"), strings.Trim(fmt.Sprintf("%#v", seed[:8]), "[]byte{}")} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q is in %q", secret, out.String())
		}
	}
}

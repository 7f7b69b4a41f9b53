package congestion

import (
	"slices"
	"testing"
)

func TestNew(t *testing.T) {
	for _, name := range Names() {
		newPolicy, err := New(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if a, b := newPolicy(), newPolicy(); a == nil || b == nil {
			t.Errorf("%s: makes no policy", name)
		}
	}
	for _, name := range []string{"rtcp", "rtcp:thesis-2016", "fixed:cubic"} {
		if !slices.Contains(Names(), name) {
			t.Errorf("there is no policy %s", name)
		}
	}
}

func TestNewUnknown(t *testing.T) {
	for _, name := range []string{"", "fixed", "fixed:nope", "rtcp:", "rtcp:../table/thesis-2016", "RTCP"} {
		_, err := New(name)
		want := `there is no policy "` + name + `"; there are fixed:bbr, fixed:bic, fixed:burst, fixed:cubic, ` +
			`fixed:highspeed, fixed:htcp, fixed:hybla, fixed:reno, fixed:scalable, fixed:vegas, fixed:westwood, plait, plait:aggressive, rtcp, `
		if err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("got  %v\nwant %s...", err, want)
		}
	}
}

package stripe

import (
	"maps"
	"testing"
)

func TestParseLinks(t *testing.T) {
	got, err := ParseLinks("wlan0,wwan0=0.5,eth0:cap=2GB,usb0:backup,ppp0=1:priority=2:cap=1.5MiB")
	want := map[string]Policy{"wlan0": {}, "wwan0": {Share: 0.5}, "eth0": {CapBytes: 2e9}, "usb0": {Backup: true}, "ppp0": {Share: 1, Priority: 2, CapBytes: 3 << 19}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "a,,b", "a,a", "a=0", "a=2", "a=x", "a:cap", "a:cap=0", "a:cap=16kB", "a:cap=5XB", "a:cap=1e30GB", "a:priority=-1", "a:priority=x", "a:what", "a=NaN", "a=0.9,b=0.1", "a:backup:backup", "a:cap=1GB:cap=2GB", "a:priority=1:priority=1"} {
		if got, err := ParseLinks(bad); err == nil {
			t.Errorf("%q gives %v, no error", bad, got)
		}
	}
}

func FuzzParseLinks(f *testing.F) {
	f.Add("wlan0,wwan0=0.5,eth0:cap=2GB,usb0:backup,ppp0:priority=1")
	f.Fuzz(func(t *testing.T, text string) {
		links, err := ParseLinks(text)
		for name, p := range links {
			if err == nil && p.Validate() != nil {
				t.Errorf("%q gives link %s %+v", text, name, p)
			}
		}
	})
}

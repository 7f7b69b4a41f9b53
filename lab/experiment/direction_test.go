package experiment

import "testing"

func TestDirectionWith(t *testing.T) {
	x := mustLoad(t, `
links:
  a:
    ends: [client, server]
    rate_mbps: 10
    delay_ms: 20
    queue_packets: 30
    loss_percent: 1
    forward: {cellular: {profile: att-lte-driving-up}, queue_bytes: 40000}
    backward: {delay_ms: 5, then: {rate_mbps: 3, queue_packets: 4, delay_ms: 6}}
  lan: {ends: [client, server, other]}
`+bulk, Options{})
	a := x.Cells()[0].Spec.Links["a"]
	for name, test := range map[string]struct {
		got  *Direction
		want string
	}{
		"both":     {&a.Direction, ""},
		"forward":  {a.Forward, "cellular att-lte-driving-up, 40000 bytes, 1 % loss, 20 ms"},
		"backward": {a.Backward, "10 Mbit/s, 30 packets, 1 % loss, 5 ms, then 3 Mbit/s, 4 packets, 6 ms"},
	} {
		if got := test.got.String(); got != test.want {
			t.Errorf("%s is %q, want %q", name, got, test.want)
		}
	}
	rate := 7.0
	for over, want := range map[*Direction]string{
		{RateMbps: &rate}:                   "7 Mbit/s, 30 packets, 1 % loss, 5 ms, then 3 Mbit/s, 4 packets, 6 ms",
		{Then: &Direction{RateMbps: &rate}}: "10 Mbit/s, 30 packets, 1 % loss, 5 ms, then 7 Mbit/s, 4 packets, 6 ms",
	} {
		if got := a.Backward.With(over).String(); got != want {
			t.Errorf("with %s it is %q, want %q", over, got, want)
		}
	}
	if a.Forward.Cellular.RateScale != 1 {
		t.Errorf("the default of rate_scale is %g", a.Forward.Cellular.RateScale)
	}
	if lan := x.Cells()[0].Spec.Links["lan"]; lan.Forward == nil || lan.Backward == nil {
		t.Error("a direction is nil")
	}
}

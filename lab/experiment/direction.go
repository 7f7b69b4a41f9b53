package experiment

import (
	"fmt"
	"reflect"
	"strings"
)

// With returns the direction with the parameters that over has replaced. A capacity replaces one of another kind, and a
// queue in bytes one in packets and the other way round; what is nested behind it (then) is taken likewise, parameter by
// parameter. Neither is changed; over may be nil.
func (d *Direction) With(over *Direction) *Direction {
	merged := Direction{}
	if d != nil {
		merged = *d
	}
	if over == nil {
		return &merged
	}
	if len(over.capacities()) > 0 {
		merged.RateMbps, merged.Trace, merged.Cellular, merged.WiMAX = nil, nil, nil, nil
	}
	if over.QueuePackets != nil || over.QueueBytes != nil {
		merged.QueuePackets, merged.QueueBytes = nil, nil
	}
	to, from := reflect.ValueOf(&merged).Elem(), reflect.ValueOf(over).Elem()
	for i := range from.NumField() {
		if f := from.Field(i); !f.IsZero() {
			to.Field(i).Set(f)
		}
	}
	if d != nil && d.Then != nil && over.Then != nil {
		merged.Then = d.Then.With(over.Then)
	}
	return &merged
}

// capacities are the keys of the capacity models the direction has.
func (d *Direction) capacities() []string {
	var keys []string
	for _, c := range []struct {
		key   string
		given bool
	}{
		{"rate_mbps", d.RateMbps != nil}, {"trace", d.Trace != nil}, {"cellular", d.Cellular != nil}, {"wimax", d.WiMAX != nil},
	} {
		if c.given {
			keys = append(keys, c.key)
		}
	}
	return keys
}

// String is the direction in a few words, in the order a packet meets them: "30 Mbit/s, 100 packets, 1 % loss, 10 ms".
func (d *Direction) String() string {
	if d == nil {
		return ""
	}
	var parts []string
	add := func(format string, values ...any) { parts = append(parts, fmt.Sprintf(format, values...)) }
	if d.RateMbps != nil {
		add("%g Mbit/s", *d.RateMbps)
	}
	if d.Trace != nil {
		add("trace %s", d.Trace.File[strings.LastIndex(d.Trace.File, "/")+1:])
	}
	if d.Cellular != nil {
		add("cellular %s", d.Cellular.Profile)
	}
	if d.WiMAX != nil {
		add("mobile WiMAX")
	}
	if d.QueuePackets != nil {
		add("%d packets", *d.QueuePackets)
	}
	if d.QueueBytes != nil {
		add("%d bytes", *d.QueueBytes)
	}
	if d.LossPercent != nil {
		add("%g %% loss", *d.LossPercent)
	}
	if g := d.GilbertElliott; g != nil {
		add("Gilbert-Elliott loss")
		if g.MACAttempts > 1 {
			add("%d MAC attempts", g.MACAttempts)
		}
	}
	if d.Jitter != nil {
		add("jitter %g ms", d.Jitter.MeanMs)
	}
	if d.Reorder != nil {
		add("%g %% reordered", d.Reorder.Percent)
	}
	if d.DelayMs != nil {
		add("%g ms", *d.DelayMs)
	}
	if d.Then != nil {
		add("then %s", d.Then)
	}
	return strings.Join(parts, ", ")
}

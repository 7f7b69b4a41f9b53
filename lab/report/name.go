package report

import (
	"strings"

	"plait.dev/plait/lab/result"
)

// units are the endings of the names of metrics and parameters, and how the unit is written. Longer endings come first.
var units = []struct{ ending, unit string }{
	{"_mbps", "Mbit/s"}, {"_kbps", "kbit/s"}, {"_bps", "bit/s"}, {"_percent", "%"}, {"_packets", "packets"},
	{"_segments", "segments"}, {"_bytes", "bytes"}, {"_kmh", "km/h"}, {"_kb", "KB"}, {"_mb", "MB"}, {"_ms", "ms"}, {"_us", "µs"}, {"_per_second", "1/s"}, {"_per_s", "1/s"}, {"_s", "s"}, {"_m", "m"},
}

// spell splits a name like goodput_mbps into words and unit.
func spell(name string) (words, unit string) {
	for _, u := range units {
		if rest, ok := strings.CutSuffix(name, u.ending); ok && rest != "" {
			return strings.ReplaceAll(rest, "_", " "), u.unit
		}
	}
	return strings.ReplaceAll(name, "_", " "), ""
}

// withUnit writes a parameter's value with the unit in its name.
func withUnit(name string, v any) string {
	words, unit := spell(name)
	text := words + " " + result.Text(v)
	if unit != "" {
		text += "\u00a0" + unit
	}
	return text
}

// pointLabel writes what tells a point of the matrix from the others.
func pointLabel(t result.Table, point int) string {
	var parts []string
	for _, name := range t.Params {
		parts = append(parts, withUnit(name, t.Points[point].Params[name]))
	}
	return strings.Join(parts, ", ")
}

// split cuts <owner>.<quantity> at the last dot.
func split(name string) (owner, quantity string) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name
	}
	return name[:i], name[i+1:]
}

// match reports whether a name fits a pattern in which * stands for any run of characters.
func match(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	for _, part := range parts[1 : len(parts)-1] {
		if ok {
			_, rest, ok = strings.Cut(rest, part)
		}
	}
	return ok && strings.HasSuffix(rest, parts[len(parts)-1])
}

// better says whether more (1) or less (-1) of a metric is better, or neither is known (0).
func better(metric string) int {
	_, unit := spell(metric)
	switch {
	case metric == "start_s", unit == "1/s": // a rate: that of requests is better high, that of timeouts low
		return 0
	case strings.Contains(metric, "goodput"), strings.Contains(metric, "jain"), strings.Contains(metric, "_second_mbps"):
		return 1
	case strings.HasSuffix(metric, "_ms"), strings.HasSuffix(metric, "_s"), strings.Contains(metric, "retrans"), strings.Contains(metric, "harm"):
		return -1
	}
	return 0
}

package report

import (
	"math"
	"strings"

	"plait.dev/plait/lab/result"
)

const (
	lineH     = 14.0
	labelWrap = 24
)

func (n *network) drawLabel(link result.Link, x, y float64) {
	lines := n.label(link)
	class, at := "mid halo", y-8-lineH*float64(len(lines)-1)
	if n.vertical {
		class, x, at = "halo", x+8, y+4-lineH*float64(len(lines)-1)/2
	}
	for i, text := range lines {
		weight := "small "
		if i == 0 {
			weight = "strong "
		}
		n.c.text(weight+class, x, at+lineH*float64(i), text)
	}
}

// label is the link's name and what it does to packets; the directions are told apart by arrows if they differ.
func (n *network) label(link result.Link) []string {
	lines := []string{link.Name}
	if link.Backward == "" {
		return append(lines, wrap("", link.Forward)...)
	}
	there, back := "→ ", "← "
	if n.vertical {
		there, back = "↓ ", "↑ "
	}
	if n.at[link.Ends[0]].column > n.at[link.Ends[1]].column {
		there, back = back, there
	}
	lines = append(lines, wrap(there, link.Forward)...)
	return append(lines, wrap(back, link.Backward)...)
}

// wrap breaks the parts of a direction into lines.
func wrap(arrow, parts string) []string {
	if parts == "" {
		return nil
	}
	lines := []string{arrow}
	for i, part := range strings.Split(parts, ", ") {
		last := &lines[len(lines)-1]
		switch {
		case i == 0:
			*last += part
		case len(*last)+len(part) > labelWrap:
			*last += ","
			lines = append(lines, part)
		default:
			*last += ", " + part
		}
	}
	return lines
}

func labelSizeOf(lines []string) (w, h float64) {
	for i, text := range lines {
		size := 11.0
		if i == 0 {
			size = 12
		}
		w = math.Max(w, textWidth(text, size))
	}
	return w, lineH * float64(len(lines))
}

package report

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"plait.dev/plait/lab/result"
)

// plotSeries draws quantities over time: a panel per point of the matrix, a line per variant. Subflows get a panel per
// variant and a line each; their goodput is stacked, so that the top is the sum. With several seeds the line is their
// mean and a band spans them.
func plotSeries(s source, plot result.Plot) *figure {
	chosen := fitting(plot, names(s, seriesNames))
	fig := &figure{Title: seriesTitle(chosen), csv: [][]string{{"panel", "curve", "time_s", "value", "lowest", "highest"}}}
	var titles []string
	var frames []frame
	for _, point := range s.points(plot) {
		for _, set := range seriesSets(s, chosen) {
			f := frame{yUnit: set.unit, xUnit: "time, s"}
			for _, id := range set.ids {
				f.curves = append(f.curves, seriesCurves(s, point, id)...)
				f.marks = addMarks(f.marks, s.table.Cells(point, id.variant))
			}
			if len(f.curves) == 0 {
				continue
			}
			title := strings.Trim(pointLabel(s.table, point)+": "+set.title, ": ")
			fig.addCurves(title, f.curves) // each as it was measured, before they are stacked
			if set.stack {
				f.curves = stack(f.curves)
			}
			titles, frames = append(titles, title), append(frames, f)
		}
	}
	shareScales(frames, plot.LogY)
	fig.Note = joinedNotes(seriesNote(frames), subflowNote(s, chosen))
	return framed(fig, titles, frames)
}

// seriesSet is what shares a panel.
type seriesSet struct {
	title, unit string
	stack       bool
	ids         []seriesID
}

// seriesSets decides what goes into a panel together.
func seriesSets(s source, chosen []string) []seriesSet {
	var sets []seriesSet
	for _, quantity := range quantities(chosen) {
		var owners []string
		subflows := false
		for _, name := range chosen {
			if owner, q := split(name); q == quantity {
				owners = append(owners, owner)
				subflows = subflows || strings.Contains(owner, "/")
			}
		}
		words, unit := spell(quantity)
		extra := ""
		if len(quantities(chosen)) > 1 {
			extra = words
		}
		if subflows || len(s.table.Variants) == 1 {
			for _, variant := range s.table.Variants {
				set := seriesSet{title: joined(variantTitle(s, variant), extra), unit: unit, stack: subflows && strings.HasSuffix(quantity, "_mbps")}
				for _, owner := range owners {
					set.ids = append(set.ids, seriesID{variant, owner + "." + quantity, ownerTitle(owner), ownerHue(s, owner)})
				}
				sets = append(sets, set)
			}
			continue
		}
		for _, owner := range owners {
			set := seriesSet{title: extra, unit: unit}
			if len(owners) > 1 {
				set.title = joined(owner, extra)
			}
			for _, variant := range s.table.Variants {
				set.ids = append(set.ids, seriesID{variant, owner + "." + quantity, variant, s.variants.get(variant)})
			}
			sets = append(sets, set)
		}
	}
	return sets
}

// shareScales gives all panels of a unit the same axes, so that they can be compared.
func shareScales(frames []frame, log bool) {
	type span struct{ min, max, least float64 }
	times := 0.0
	spans := map[string]*span{}
	for _, f := range frames {
		s := spans[f.yUnit]
		if s == nil {
			s = &span{math.Inf(1), math.Inf(-1), math.Inf(1)}
			spans[f.yUnit] = s
		}
		for _, cv := range f.curves {
			times = math.Max(times, cv.xs[len(cv.xs)-1])
			for _, v := range slices.Concat(cv.ys, cv.lo, cv.hi) {
				s.min, s.max = math.Min(s.min, v), math.Max(s.max, v)
				if v > 0 {
					s.least = math.Min(s.least, v)
				}
			}
		}
	}
	for i := range frames {
		s := spans[frames[i].yUnit]
		low := s.min
		if log {
			low = s.least
		}
		frames[i].x = scale{min: 0, max: times}
		if times == 0 {
			frames[i].x.max = 1
		}
		frames[i].y = newScale(low, s.max, log)
	}
}

func (f *figure) addCurves(panel string, curves []curve) {
	for _, cv := range curves {
		for i := range cv.xs {
			row := []string{panel, cv.name, number(cv.xs[i]), number(cv.ys[i]), "", ""}
			if len(cv.lo) > 0 {
				row[4] = number(cv.lo[i])
			}
			if len(cv.hi) > 0 {
				row[5] = number(cv.hi[i])
			}
			f.csv = append(f.csv, row)
		}
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 8, 64) }

func seriesNote(frames []frame) string {
	var parts []string
	band, thin, area := false, false, false
	for _, f := range frames {
		for _, cv := range f.curves {
			band, thin, area = band || len(cv.hi) > 0, thin || cv.thin, area || cv.area
		}
	}
	if area {
		parts = append(parts, "Stacked: the top is the sum of the subflows.")
	}
	if band {
		parts = append(parts, "Line: mean over the seeds; band: lowest to highest seed.")
	}
	if thin {
		parts = append(parts, "One line per seed.")
	}
	return strings.Join(parts, " ")
}

// subflowNote says what the numbered subflows are, as the first cell that has them knows it.
func subflowNote(s source, chosen []string) string {
	var owners, notes []string
	for _, cell := range s.file.Cells {
		for _, r := range cell.Series {
			owner, _ := split(r.Name)
			if r.Label != "" && slices.Contains(chosen, r.Name) && !slices.Contains(owners, owner) {
				owners = append(owners, owner)
				notes = append(notes, ownerTitle(owner)+": "+r.Label)
			}
		}
	}
	if len(notes) == 0 {
		return ""
	}
	return capital(strings.Join(notes, "; ")) + "."
}

func joinedNotes(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), " ")
}

func seriesTitle(chosen []string) string {
	var words []string
	for _, quantity := range quantities(chosen) {
		word, _ := spell(quantity)
		words = append(words, word)
	}
	return capital(strings.Join(words, ", ")) + " over time"
}

// quantities returns the parts behind the last dot, each once.
func quantities(all []string) []string {
	var list []string
	for _, name := range all {
		if _, q := split(name); !slices.Contains(list, q) {
			list = append(list, q)
		}
	}
	return list
}

// variantTitle is empty where there is only one variant: its name says nothing.
func variantTitle(s source, variant string) string {
	if len(s.table.Variants) == 1 {
		return ""
	}
	return variant
}

// ownerTitle names an application or subflow.
func ownerTitle(owner string) string {
	if _, n, ok := strings.Cut(owner, "/"); ok {
		return "subflow " + n
	}
	return owner
}

// ownerHue gives subflow n the n-th colour, and applications theirs by name.
func ownerHue(s source, owner string) int {
	if _, n, ok := strings.Cut(owner, "/"); ok {
		if i, err := strconv.Atoi(n); err == nil && i > 0 {
			return i - 1
		}
	}
	return s.others.get(owner)
}

func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

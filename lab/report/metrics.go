package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"plait.dev/plait/lab/result"
)

// metricRef names one metric.
type metricRef struct{ owner, name string }

// title is the metric as the head of a column; the owner is left out if every column has the same.
func (m metricRef) title(withOwner bool) string {
	words, unit := spell(m.name)
	if withOwner {
		words = m.owner + " " + words
	}
	return joined(words, unit)
}

// telling are metrics worth a look where nobody says what matters, in this order.
var telling = []string{"goodput_mbps", "p50_ms", "p95_ms", "mean_ms", "completion_s", "longest_silence_ms", "jain_mean"}

var wordsOf = regexp.MustCompile(`[A-Za-z_][\w/-]*(\.[A-Za-z_][\w/-]*)+`)

// mainMetrics chooses what the summary shows, at most four: metrics the experiment's plots draw, then those its bounds are
// about, else telling ones.
func mainMetrics(s source) []metricRef {
	const most = 4
	all := names(s, metricNames)
	var chosen []metricRef
	add := func(name string) {
		owner, metric := split(name)
		if m := (metricRef{owner, metric}); len(chosen) < most && !slices.Contains(chosen, m) {
			chosen = append(chosen, m)
		}
	}
	for _, plot := range s.file.Experiment.Plots {
		if plot.Kind != "series" && plot.Kind != "cdf" {
			for _, name := range fitting(plot, all) {
				add(name)
			}
		}
	}
	for _, b := range s.file.Bounds {
		for _, path := range wordsOf.FindAllString(b.Expression, -1) {
			for _, name := range all {
				if s.concerns(path, name) {
					add(name)
				}
			}
		}
	}
	if len(chosen) > 0 {
		return chosen
	}
	for _, metric := range telling {
		for _, name := range all {
			if owner, m := split(name); m == metric && !strings.Contains(owner, "/") && len(chosen) < 3 {
				add(name)
			}
		}
	}
	return chosen
}

// concerns reports whether a path of a bound, variant.metric or variant.owner.metric, is about a metric of some variant.
func (s source) concerns(path, name string) bool {
	owner, metric := split(name)
	return slices.ContainsFunc(s.table.Variants, func(v string) bool { return s.isMetric(path, v, owner, metric) })
}

// lead is the table at the top of an experiment: points of the matrix by variants by metrics.
type lead struct {
	Params  []string
	Metrics []string
	// Variants, side by side for every metric; below each other if that would be too wide (Long).
	Variants []leadVariant
	Long     bool
	Rows     []leadRow
}

// Dense is set for tables with so many columns that they need to stand close.
func (l lead) Dense() bool { return !l.Long && len(l.Metrics)*len(l.Variants) > 8 }

type leadVariant struct {
	Name string
	Hue  string
}

type leadRow struct {
	Params []string
	// Cells by metric and variant.
	Cells [][]leadCell
}

type leadCell struct {
	Value, SD string
	// Best is set where one variant is better than all others.
	Best bool
	// Few says how many of the runs have the metric, if not all do: the number is no fair one beside others.
	Few string
	// Invalid says why there is no number.
	Invalid string
}

// leadStat is what becomes a leadCell.
type leadStat struct {
	result.Stat
	// had is how many of the runs have the metric.
	had, runs int
	invalid   string
}

// maxLeadColumns is how many columns of numbers stand side by side.
const maxLeadColumns = 16

func newLead(s source) lead {
	l, metrics := leadHeads(s)
	for point := range s.table.Points {
		r := leadRow{}
		for _, p := range s.table.Params {
			r.Params = append(r.Params, result.Text(s.table.Points[point].Params[p]))
		}
		for _, m := range metrics {
			r.Cells = append(r.Cells, leadCells(s, m, func(variant string) leadStat {
				stat, _ := s.table.Metric(point, variant, m.owner, m.name)
				cells, invalid := s.table.Cells(point, variant), ""
				for _, cell := range cells {
					invalid = cell.Invalid
				}
				return leadStat{stat, stat.N, len(cells), invalid}
			}))
		}
		l.Rows = append(l.Rows, r)
	}
	return l
}

// newLeadMean has one row: each variant's mean over the points of the matrix.
func newLeadMean(s source) lead {
	l, metrics := leadHeads(s)
	l.Params = nil
	r := leadRow{}
	for _, m := range metrics {
		means, _ := s.means(m)
		r.Cells = append(r.Cells, leadCells(s, m, func(variant string) leadStat {
			mean := leadStat{Stat: result.Summarise(means[variant])}
			mean.SD = 0 // that over the points says nothing about the seeds
			for point := range s.table.Points {
				if stat, ok := s.table.Metric(point, variant, m.owner, m.name); ok {
					mean.had, mean.runs = mean.had+stat.N, mean.runs+len(s.table.Cells(point, variant))
				}
			}
			return mean
		}))
	}
	l.Rows = []leadRow{r}
	return l
}

// means returns the mean of a metric at every point at which all variants that have it anywhere have it: a variant without
// runs where it is hard would else be compared by the easy points.
func (s source) means(m metricRef) (byVariant map[string][]float64, points int) {
	byVariant = map[string][]float64{}
	at := make([]map[string]float64, len(s.table.Points))
	some := map[string]bool{}
	for point := range s.table.Points {
		at[point] = map[string]float64{}
		for _, variant := range s.table.Variants {
			if stat, ok := s.table.Metric(point, variant, m.owner, m.name); ok {
				at[point][variant], some[variant] = stat.Mean, true
			}
		}
	}
	for _, means := range at {
		if len(means) < len(some) {
			continue
		}
		points++
		for variant, mean := range means {
			byVariant[variant] = append(byVariant[variant], mean)
		}
	}
	return byVariant, points
}

func leadHeads(s source) (lead, []metricRef) {
	metrics := mainMetrics(s)
	owners := map[string]bool{}
	for _, m := range metrics {
		owners[m.owner] = true
	}
	l := lead{Long: len(metrics)*len(s.table.Variants) > maxLeadColumns}
	for _, p := range s.table.Params {
		words, unit := spell(p)
		l.Params = append(l.Params, joined(words, unit))
	}
	for _, m := range metrics {
		l.Metrics = append(l.Metrics, m.title(len(owners) > 1))
	}
	for _, v := range s.table.Variants {
		l.Variants = append(l.Variants, leadVariant{v, hue(s.variants.get(v))})
	}
	return l, metrics
}

// leadCells returns one metric for every variant, the best one marked unless some of its runs lack it. stat gives its
// statistics, or, if there are none, why the runs are invalid.
func leadCells(s source, m metricRef, stat func(variant string) leadStat) []leadCell {
	cells := make([]leadCell, len(s.table.Variants))
	best, bestMean, ties := -1, 0.0, 0
	for i, variant := range s.table.Variants {
		measured := stat(variant)
		if measured.N == 0 {
			cells[i].Invalid = measured.invalid
			continue
		}
		cells[i].Value = value(measured.Mean)
		if measured.N > 1 && measured.SD > 0 {
			cells[i].SD = spread(measured.SD)
		}
		if measured.had < measured.runs {
			cells[i].Few = fmt.Sprintf("%d of %s", measured.had, plural(measured.runs, "run"))
		}
		switch gain := float64(better(m.name)) * (measured.Mean - bestMean); {
		case best < 0:
			best, bestMean = i, measured.Mean
		case cells[i].Value == cells[best].Value:
			ties++
		case gain > 0:
			best, bestMean, ties = i, measured.Mean, 0
		}
	}
	if best >= 0 && ties == 0 && cells[best].Few == "" && len(s.table.Variants) > 1 && better(m.name) != 0 {
		cells[best].Best = true
	}
	return cells
}

// headline says in a sentence how the variants differ in the first main metric, on average over the matrix.
func headline(s source) string {
	metrics := mainMetrics(s)
	if len(metrics) == 0 {
		return ""
	}
	m := metrics[0]
	words, unit := spell(m.name)
	type mean struct {
		variant string
		value   float64
	}
	var means []mean
	all, points := s.means(m)
	for _, variant := range s.table.Variants {
		if values := all[variant]; len(values) > 0 {
			means = append(means, mean{variant, result.Summarise(values).Mean})
		}
	}
	over := ""
	switch total := len(s.table.Points); {
	case points == 0:
		return ""
	case points < total:
		over = fmt.Sprintf(", mean over the %d of %d points that all have", points, total)
	case total > 1:
		over = ", mean over " + plural(total, "point")
	}
	if len(means) > 3 {
		low, high := means[0], means[0]
		for _, x := range means {
			if x.value < low.value {
				low = x
			}
			if x.value > high.value {
				high = x
			}
		}
		top, bottom := "best ", "worst "
		switch better(m.name) {
		case -1:
			low, high = high, low
		case 0:
			top, bottom = "highest ", "lowest "
		}
		if value(high.value) == value(low.value) {
			means = []mean{{plural(len(means), "variant") + " each", high.value}}
		} else {
			means = []mean{{top + high.variant, high.value}, {bottom + low.variant, low.value}}
		}
	}
	var parts []string
	for _, x := range means {
		if len(s.table.Variants) == 1 {
			x.variant = ""
		}
		parts = append(parts, strings.TrimSpace(x.variant+" "+value(x.value)+"\u00a0"+unit))
	}
	return capital(m.owner+" "+words) + ": " + strings.Join(parts, ", ") + over
}

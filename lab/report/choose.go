package report

import (
	"strings"

	"plait.dev/plait/lab/result"
)

// maxPanels is how many points of a matrix get a panel each when the report chooses.
const maxPanels = 9

// choose picks plots for an experiment that names none: the main metrics, distributions of the samples, goodput over time.
func choose(s source) []result.Plot {
	var plots []result.Plot
	for _, m := range mainMetrics(s) {
		show := []string{m.owner + "." + m.name}
		switch {
		case len(s.table.Params) == 2 && len(s.table.Points) > 4:
			plots = append(plots, result.Plot{Kind: "heat", Show: show, X: s.table.Params[0], Y: s.table.Params[1], LogY: s.wide(show[0])})
		case len(s.table.Points)*len(s.table.Variants) > 1:
			plots = append(plots, result.Plot{Kind: "bars", Show: show})
		}
	}
	for _, name := range names(s, func(c *result.Cell) []string { return sampleNames(c) }) {
		kind := "box"
		if len(s.table.Variants) > 1 && len(s.table.Points) <= maxPanels {
			kind = "cdf"
		}
		plots = append(plots, result.Plot{Kind: kind, Show: []string{name}, LogY: s.wide(name)})
	}
	if len(s.table.Points) > maxPanels {
		return plots
	}
	for _, name := range names(s, func(c *result.Cell) []string { return seriesNames(c) }) {
		if owner, quantity := split(name); quantity == "goodput_mbps" && !strings.Contains(owner, "/") {
			plots = append(plots, result.Plot{Kind: "series", Show: []string{name}})
		}
	}
	return plots
}

// wide reports whether the values of a metric or samples span so much that only a logarithmic axis shows all of them.
func (s source) wide(name string) bool {
	const span = 50
	owner, quantity := split(name)
	var all []float64
	for _, cell := range s.file.Cells {
		if v, ok := cell.Metrics[owner][quantity]; ok {
			all = append(all, v)
		}
		for _, samples := range cell.Samples {
			if samples.Name == name {
				all = append(all, samples.Values...)
			}
		}
	}
	stat := result.Summarise(all)
	return stat.Min > 0 && stat.Max > span*stat.Min
}

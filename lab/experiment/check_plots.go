package experiment

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The series and samples of a result by what has them (docs/lab/traffic.md and docs/lab/measure.md); metrics are in metrics.go.
var (
	socketSeries = []string{"cwnd_packets", "ssthresh_packets", "inflight_packets", "srtt_ms", "goodput_mbps", "retransmits", "spurious_retransmits"}
	armsSeries   = []string{"address1_cwnd_bytes", "address2_cwnd_bytes"}
	linkSeries   = []string{"forward_mbps", "backward_mbps", "forward_queue_packets", "backward_queue_packets"}
	appSamples   = map[string][]string{"stream": {"delay_ms"}, "bursts": {"latency_ms", "first_last_ms"}, "ping": {"rtt_ms"}}
	nodeSamples  = []string{"announce_epe_ms", "announce_best_ms", "withdraw_epe_ms", "withdraw_best_ms", "fail_epe_ms", "fail_best_ms", "recover_epe_ms", "recover_best_ms"}
)

// drawn is what a figure of a kind draws, in words.
var drawn = map[string]string{"series": "series", "cdf": "sample", "box": "sample", "bars": "metric", "heat": "metric"}

// shown are the names that a figure may draw of a cell. Connections and subflows have number 1: how many there will be is not
// known.
func (s *Spec) shown(what string) []string {
	var all []string
	add := func(owner string, names ...string) {
		for _, name := range names {
			all = append(all, owner+"."+name)
		}
	}
	if what == "metric" {
		metrics := s.Metrics()
		for _, owner := range sortedKeys(metrics) {
			for _, m := range metrics[owner] {
				add(owner, m.Name)
			}
		}
	}
	for _, name := range sortedKeys(s.Apps) {
		app := s.Apps[name]
		followed := app.Type != "ping" && app.Protocol != "sctp" // by its TCP sockets
		switch {
		case what == "sample":
			add(name, appSamples[app.Type]...)
		case what == "metric" && followed && s.Measure.Sockets:
			add(name+"/1", "delivered_bytes")
		case what == "series":
			if app.hasGoodput() || app.countedGoodput(s.Measure) {
				add(name, "goodput_mbps")
			}
			if followed && s.Measure.Sockets {
				add(name+"/1", socketSeries...)
			}
			if app.Split == "cwnd" {
				add(name, armsSeries...)
			}
			for _, m := range probeMetrics.Metrics {
				if followed && s.Measure.Probe {
					add(name, m.Name)
				}
			}
		}
	}
	if what == "sample" {
		for _, node := range s.Measure.Routes {
			add(node, nodeSamples...)
		}
	}
	if what == "series" && s.Measure.Links {
		for _, name := range sortedKeys(s.Links) {
			if ends := s.Links[name].Ends; len(ends) == 2 {
				add(name, linkSeries...)
			} else {
				for _, node := range ends {
					add(name, "to_"+node+"_mbps", "to_"+node+"_queue_packets")
				}
			}
		}
	}
	if what == "series" && len(s.Measure.Jain) > 0 {
		add(fairness, "jain")
	}
	return all
}

// checkPlot reports a figure that would be empty.
func (x *Experiment) checkPlot(plot Plot, path string, report func(path string, err error)) {
	points, err := x.where(plot.When)
	report(join(path, "when"), err)
	report(join(path, "x"), x.checkAxis(plot.X))
	report(join(path, "y"), x.checkAxis(plot.Y))
	if plot.Kind == "heat" && (plot.X == "" || plot.Y == "") {
		report(path, fmt.Errorf("a figure of kind heat needs x and y, the parameters along its axes"))
	}
	if err != nil {
		points = x.points
	}
	if len(x.load.opt.Set) > 0 { // what is shown may be at the points that --set left out
		return
	}
	if len(points) == 0 {
		report(path, fmt.Errorf("applies at no point of the matrix"))
		return
	}
	var all []string
	for _, p := range points {
		for _, cell := range p.cells {
			all = append(all, cell.Spec.shown(drawn[plot.Kind])...)
		}
	}
	for i, show := range plot.Show {
		report(fmt.Sprintf("%s.show.%d", path, i), checkShown(show, plot.Kind, all))
	}
}

// checkAxis reports an axis of a plot that is not a parameter of the matrix.
func (x *Experiment) checkAxis(name string) error {
	if name == "" {
		return nil
	}
	x.load.used[name] = true
	var all []string
	for _, axis := range x.Axes {
		all = append(all, axis.Names...)
	}
	if slices.Contains(all, name) || len(x.load.opt.Set) > 0 {
		return nil
	}
	return fmt.Errorf("%s is not a parameter of the matrix%s", name, suggest(name, all))
}

var flowNumber = regexp.MustCompile(`/[1-9][0-9]*\.`)

// checkShown reports what fits none of the names a figure may draw; * stands for any run of characters.
func checkShown(show, kind string, all []string) error {
	owner, _, ok := strings.Cut(show, ".")
	if !ok {
		return fmt.Errorf("%s is not of the form name.metric", show)
	}
	first := flowNumber.ReplaceAllString(show, "/1.")
	fits := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(first), `\*`, ".*") + "$")
	if slices.ContainsFunc(all, fits.MatchString) {
		return nil
	}
	var its []string // names of the same owner tell more than a far suggestion
	for _, name := range slices.Compact(slices.Sorted(slices.Values(all))) {
		if own, quantity, _ := strings.Cut(name, "."); own == owner {
			its = append(its, quantity)
		}
	}
	text := fmt.Sprintf("there is no %s called %s, which is what kind: %s draws", drawn[kind], show, kind)
	switch near := suggest(show, all); {
	case near != "":
		text += near
	case len(its) > 0:
		text += fmt.Sprintf("; %s has %s", owner, strings.Join(its, ", "))
	case strings.Contains(owner, "/"):
		text += "; those of connections need measure.sockets"
	}
	return fmt.Errorf("%s", text)
}

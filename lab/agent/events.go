package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/measure"
	"plait.dev/plait/lab/result"
	"plait.dev/plait/lab/topo"
)

// happen carries out one event of the timeline.
func (n *network) happen(spec *experiment.Spec, e experiment.Event, seed uint64) error {
	if e.Run != "" {
		return runIn(e.Node, nil, "sh", "-c", e.Run)
	}
	emulated := slices.Contains(n.plan.Emulated, e.Link)
	if e.Set != nil || e.Forward != nil || e.Backward != nil {
		l := spec.Links[e.Link]
		l.Forward, l.Backward = l.Forward.With(e.Set).With(e.Forward), l.Backward.With(e.Set).With(e.Backward)
		if err := n.setLink(e.Link, l, seed, uint64(e.Index)+1); err != nil {
			return err
		}
	}
	switch {
	case emulated && e.Blackhole != "":
		return n.emulator.Blackhole(e.Link, e.Blackhole)
	case emulated && e.Carrier != "":
		return n.emulator.Carrier(e.Link, e.Carrier == "up")
	}
	steps, err := n.topology.EventSteps(e)
	if err != nil {
		return err
	}
	return runSteps(steps)
}

// describe says in a few words what an event is, for the plots.
func describe(e experiment.Event) string {
	switch {
	case e.Blackhole == "none":
		return e.Link + ": blackhole ends"
	case e.Blackhole != "":
		return e.Link + ": blackhole " + e.Blackhole
	case e.Carrier != "":
		return e.Link + ": carrier " + e.Carrier
	case e.Announce != "":
		return e.Router + " announces " + e.Announce
	case e.Withdraw != "":
		return e.Router + " withdraws " + e.Withdraw
	case e.Address != "":
		return e.Node + ": address " + e.Address
	case e.Run != "":
		return e.Node + ": " + e.Run
	}
	both, forward, backward := e.Set.String(), e.Forward.String(), e.Backward.String()
	var parts []string
	add := func(direction, change string) {
		if change != "" {
			parts = append(parts, direction+change)
		}
	}
	add("", both)
	if forward == backward {
		add("", forward)
	} else {
		add("forward ", forward)
		add("backward ", backward)
	}
	return e.Link + ": " + strings.Join(parts, ", ")
}

// counters says where each link's traffic is counted.
func (n *network) counters(spec *experiment.Spec) []measure.Link {
	var links []measure.Link
	if n.emulator != nil {
		n.tally.ask = n.emulator.Stats
	}
	for _, name := range sortedKeys(spec.Links) {
		if ends := spec.Links[name].Ends; len(ends) > 2 {
			for i, node := range ends {
				links = append(links, measure.Link{Name: name, Direction: "to_" + node, Counter: counter(n.topology.LANCounter(name, i))})
			}
			continue
		}
		for _, direction := range []string{"forward", "backward"} {
			c, forward := measure.Counter{}, direction == "forward"
			if slices.Contains(n.plan.Emulated, name) {
				c.Emulated = n.tally.totals(name, forward)
			} else {
				c = counter(n.topology.Counter(name, forward))
			}
			if q := n.queues[name+" "+direction]; q != nil {
				c.Length = q.Length
			}
			links = append(links, measure.Link{Name: name, Direction: direction, Counter: c})
		}
	}
	return links
}

func counter(c topo.Counter) measure.Counter {
	return measure.Counter{NS: c.NS, Dev: c.Device, QueueDev: c.Queue, LossDev: c.Loss, EntryDev: c.Entry}
}

// fairness compares the goodputs of the applications, and of the connections in measured, that measure.jain names.
func (c *cell) fairness(measured []result.Series) {
	names := c.spec.Measure.Jain
	series, all := goodputs(names, slices.Concat(c.out.Series, measured))
	if all && len(series) == 1 { // of all connections there is one
		return
	}
	for i, s := range series {
		app, _, _ := strings.Cut(strings.TrimSuffix(s.Name, ".goodput_mbps"), "/")
		series[i] = measure.Within(s, c.out.Metrics[app]["start_s"], c.spec.Ended(app, c.out.Metrics[app]))
	}
	shares := measure.Jain(c.spec.Measure.JainFromS, series...)
	if !all || len(shares.Index.Values) == 0 {
		c.fail(fmt.Errorf("jain of %v: no whole second in which all of them have goodput", names))
		return
	}
	c.add("fairness", map[string]float64{"jain_mean": shares.Mean, "jain_min": shares.Lowest, "ratio_max": shares.RatioMax,
		"double_percent": shares.DoublePercent}, []result.Series{shares.Index}, nil)
}

// goodputs are the series that measure.jain names, and whether each name has one.
func goodputs(names []string, series []result.Series) (found []result.Series, all bool) {
	byName := map[string]result.Series{}
	for _, s := range series {
		byName[s.Name] = s
	}
	for _, name := range names {
		one, onward := strings.CutSuffix(name, "..")
		app, number, _ := strings.Cut(one, "/")
		first, _ := strconv.Atoi(number) // of an application itself there is none, and it is not asked for
		for k := first; ; k++ {
			if onward {
				one = fmt.Sprintf("%s/%d", app, k)
			}
			s, ok := byName[one+".goodput_mbps"]
			if !ok && (!onward || k == first) {
				return nil, false
			}
			if ok {
				found = append(found, s)
			}
			if !ok || !onward {
				break
			}
		}
	}
	return found, true
}

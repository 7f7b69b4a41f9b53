package lab

import (
	"cmp"
	"reflect"
	"slices"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
	"plait.dev/plait/lab/topo"
)

// describe is what a result file says about its experiment.
func describe(e *experiment.Experiment, first *experiment.Spec) (result.Experiment, error) {
	out := e.Describe()
	t, err := topo.New(first)
	if err != nil {
		return out, err
	}
	for _, name := range t.Nodes() {
		n := result.Node{Name: name, Kind: "host"}
		if r := first.Routers[name]; r != nil {
			n.Kind, n.ASN = "router", r.ASN
		}
		out.Topology.Nodes = append(out.Topology.Nodes, n)
	}
	for name, l := range first.Links {
		link := result.Link{Name: name, Ends: l.Ends, Forward: l.Forward.String(), Backward: l.Backward.String()}
		if reflect.DeepEqual(l.Backward, l.Forward) { // equal words may leave out in what they differ
			link.Backward = ""
		} else { // an empty one would be told by the other, or not at all
			link.Forward, link.Backward = cmp.Or(link.Forward, "unlimited"), cmp.Or(link.Backward, "unlimited")
		}
		out.Topology.Links = append(out.Topology.Links, link)
	}
	slices.SortFunc(out.Topology.Links, func(a, b result.Link) int {
		return cmp.Compare(first.Links[a.Name].Index, first.Links[b.Name].Index)
	})
	return out, nil
}

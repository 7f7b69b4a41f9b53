package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"plait.dev/plait/lab/result"
)

// place is where a node or LAN stands: its column counts from the first node, its lane across the columns is in units of
// one node's room, 0 in the middle.
type place struct {
	column int
	lane   float64
}

// layout places the nodes and LANs of a topology: breadth first from the first node, a LAN in a column of its own, hosts
// that hang on nothing but a LAN on the side it was reached from.
func layout(t result.Topology) map[string]place {
	depth := depths(t)
	columns := map[int][]string{}
	for _, name := range slices.Concat(nodeNames(t), lanNames(t)) {
		columns[depth[name]] = append(columns[depth[name]], name)
	}
	order := slices.Sorted(func(yield func(int) bool) {
		for d := range columns {
			if !yield(d) {
				return
			}
		}
	})
	at := map[string]place{}
	for column, d := range order {
		names := columns[d]
		pull := map[string]float64{}
		for _, name := range names {
			pull[name] = meanLane(t, name, at)
		}
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(pull[a], pull[b]) })
		for i, name := range names {
			at[name] = place{column, float64(i) - float64(len(names)-1)/2}
		}
	}
	return at
}

// meanLane is the average lane of the neighbours already placed.
func meanLane(t result.Topology, name string, at map[string]place) float64 {
	sum, n := 0.0, 0.0
	for _, other := range neighbours(t, name) {
		if p, ok := at[other]; ok {
			sum, n = sum+p.lane, n+1
		}
	}
	return sum / math.Max(1, n)
}

// depths returns how many steps each node and LAN is from the first node; a link without LAN counts as two.
func depths(t result.Topology) map[string]int {
	depth := map[string]int{}
	from := map[string]string{}
	for _, root := range nodeNames(t) {
		if _, ok := depth[root]; ok {
			continue
		}
		depth[root] = 0
		for queue := []string{root}; len(queue) > 0; queue = queue[1:] {
			for _, next := range neighbours(t, queue[0]) {
				if _, ok := depth[next]; ok {
					continue
				}
				step := 2
				if isLAN(next) || isLAN(queue[0]) {
					step = 1
				}
				depth[next], from[next] = depth[queue[0]]+step, queue[0]
				queue = append(queue, next)
			}
		}
	}
	for _, lan := range lanNames(t) {
		members := neighbours(t, lan)
		leaf := func(name string) bool { return name != from[lan] && len(neighbours(t, name)) == 1 }
		onward := slices.ContainsFunc(members, func(name string) bool { return name != from[lan] && !leaf(name) })
		for _, name := range members {
			if onward && leaf(name) {
				depth[name] = depth[from[lan]]
			}
		}
	}
	return depth
}

// neighbours returns what a node or LAN is linked to, in the order of the file.
func neighbours(t result.Topology, name string) []string {
	var all []string
	for _, link := range t.Links {
		lan := len(link.Ends) > 2
		switch {
		case lan && name == lanName(link):
			all = append(all, link.Ends...)
		case !slices.Contains(link.Ends, name):
		case lan:
			all = append(all, lanName(link))
		case link.Ends[0] == name:
			all = append(all, link.Ends[1])
		default:
			all = append(all, link.Ends[0])
		}
	}
	return all
}

// A LAN is a vertex of the layout; its name cannot be that of a node.
func lanName(link result.Link) string { return "lan " + link.Name }
func isLAN(name string) bool          { return strings.HasPrefix(name, "lan ") }

func lanNames(t result.Topology) (all []string) {
	for _, link := range t.Links {
		if len(link.Ends) > 2 {
			all = append(all, lanName(link))
		}
	}
	return all
}

func nodeNames(t result.Topology) (all []string) {
	for _, node := range t.Nodes {
		all = append(all, node.Name)
	}
	return all
}

package report

import (
	"testing"

	"plait.dev/plait/lab/result"
)

// diamond is two paths over one router each.
func diamond() result.Topology {
	return result.Topology{
		Nodes: []result.Node{{Name: "client", Kind: "host"}, {Name: "r1", Kind: "host"}, {Name: "r2", Kind: "host"}, {Name: "server", Kind: "host"}},
		Links: []result.Link{
			{Name: "a", Ends: []string{"client", "r1"}, Forward: "10 Mbit/s, 10 ms"}, {Name: "b", Ends: []string{"client", "r2"}, Forward: "10 Mbit/s, 50 ms"},
			{Name: "c", Ends: []string{"r1", "server"}}, {Name: "d", Ends: []string{"r2", "server"}},
		},
	}
}

func TestLayout(t *testing.T) {
	for name, test := range map[string]struct {
		of   result.Topology
		want map[string]place
	}{
		"two in a row":  {chain("a", "b"), map[string]place{"a": {0, 0}, "b": {1, 0}}},
		"four in a row": {chain("a", "b", "c", "d"), map[string]place{"a": {0, 0}, "b": {1, 0}, "c": {2, 0}, "d": {3, 0}}},
		"two links":     {parallel(), map[string]place{"server": {0, 0}, "client": {1, 0}}},
		"diamond":       {diamond(), map[string]place{"client": {0, 0}, "r1": {1, -0.5}, "r2": {1, 0.5}, "server": {2, 0}}},
		"egress peering": {epe(), map[string]place{
			"server": {0, -0.5}, "rr": {0, 0.5}, "lan csp": {1, 0}, "as1": {2, -0.5}, "as2": {2, 0.5},
			"ta": {3, -0.5}, "tb": {3, 0.5}, "isp": {4, 0}, "client": {5, 0}}},
	} {
		got := layout(test.of)
		if len(got) != len(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		for node, want := range test.want {
			if got[node] != want {
				t.Errorf("%s: %s is at %v, want %v", name, node, got[node], want)
			}
		}
	}
}

func TestDrawTopology(t *testing.T) {
	for name, of := range map[string]result.Topology{"row": chain("a", "b", "c", "d"), "parallel": parallel(), "diamond": diamond(), "epe": epe()} {
		golden(t, "topology-"+name+".svg", drawTopology(of, false).file(name))
		wellFormed(t, drawTopology(of, true).file(name))
		if narrow := drawTopology(of, true); narrow.w > 420 {
			t.Errorf("%s: %v pixels wide on a telephone", name, narrow.w)
		}
	}
}

func TestParallelLinksHaveTheirOwnLanes(t *testing.T) {
	n := &network{of: parallel(), at: layout(parallel())}
	if a, b := n.lane(0), n.lane(1); a != -0.5 || b != 0.5 {
		t.Errorf("lanes %v and %v, want half a lane to either side", a, b)
	}
}

// Links over one gap between columns are a lane apart, so that no label lies on another link, where one router has two of three.
func TestLinksOfOneRouterHaveTheirOwnLanes(t *testing.T) {
	of := result.Topology{
		Nodes: []result.Node{{Name: "rr"}, {Name: "as1"}, {Name: "as2"}, {Name: "ta"}, {Name: "tc"}, {Name: "tb"}},
		Links: []result.Link{{Name: "csp", Ends: []string{"rr", "as1", "as2"}}, {Name: "a", Ends: []string{"as1", "ta"}}, {Name: "c", Ends: []string{"as1", "tc"}}, {Name: "b", Ends: []string{"as2", "tb"}}},
	}
	n := &network{of: of, at: layout(of)}
	if a, c, b := n.lane(1), n.lane(2), n.lane(3); a != -1 || c != 0 || b != 1 {
		t.Errorf("lanes %v, %v and %v, want -1, 0 and 1", a, c, b)
	}
}

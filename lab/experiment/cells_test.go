package experiment

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestResolved checks what a cell's spec has beyond what the file says, and that it survives the way to the guest.
func TestResolved(t *testing.T) {
	x := mustLoad(t, `
nodes:
  client:
links: {core: {ends: [as1, rr]}, out: {ends: [as1, ta], mtu: 1400}, access: {ends: [ta, client]}}
routers:
  rr: {asn: 65000, reflector: true, peers: {as1: }}
  as1: {asn: 65000, locator: "2001:db8:f1::/48", peers: {ta: {exit: a}}}
  ta: {asn: 64496, announce: [access], peers: {}}
apps:
  bulk: {type: download, from: as1, to: client, bytes: 1000}
  after: {type: ping, from: as1, to: client, gap_ms: 9, count: 9, when: "false"}
timeline:
  - {at_s: 1, router: ta, withdraw: access, peer: as1, when: "false"}
  - {at_s: 2, router: ta, withdraw: access, peer: as1}
`, Options{})
	text, err := json.Marshal(x.Cells()[0].Spec)
	if err != nil {
		t.Fatal(err)
	}
	spec := new(Spec)
	if err := json.Unmarshal(text, spec); err != nil {
		t.Fatal(err)
	}
	if spec.Nodes["client"] == nil {
		t.Error("a node without keys is nil")
	}
	if spec.Routers["as1"].Peers["rr"] == nil || spec.Routers["ta"].Peers["as1"] == nil || spec.Routers["as1"].Peers["ta"].Exit != "a" {
		t.Error("a BGP session is not known to both routers")
	}
	if spec.Links["core"].MTU != 1500 || spec.Links["out"].MTU != 1400 || spec.Measure.EveryMs != 100 || spec.Apps["bulk"].Family != 6 || spec.Kernel != "6.12" {
		t.Errorf("defaults are missing: %s", text)
	}
	if len(spec.Timeline) != 1 || spec.Timeline[0].AtS != 2 || spec.Timeline[0].When != "" {
		t.Errorf("the timeline is %+v", spec.Timeline)
	}
	// What is drawn for one does not depend on whether the cell has the others.
	if len(spec.Apps) != 1 || spec.Apps["bulk"].Index != 1 || spec.Timeline[0].Index != 1 {
		t.Errorf("with one before each left out: application %d, event %d, want 1 and 1", spec.Apps["bulk"].Index, spec.Timeline[0].Index)
	}
	for i, name := range []string{"core", "out", "access"} {
		if spec.Links[name].Index != i+1 {
			t.Errorf("link %s has index %d", name, spec.Links[name].Index)
		}
	}
}

// TestSubflowsAreNeeded: without a word of the file, an MPTCP connection needs a second subflow.
func TestSubflowsAreNeeded(t *testing.T) {
	for keys, want := range map[string]int{
		"protocol: tcp": 0, "protocol: mptcp": 2, "protocol: mptcp, min_subflows: 0": 0, "protocol: mptcp, min_subflows: 1": 1,
		"protocol: mptcp, min_subflows: 3": 3, "protocol: mptcp, min_subflows: null": 2,
	} {
		x := mustLoad(t, "links: {a: {ends: [client, server]}}\napps: {bulk: {type: download, from: server, to: client, bytes: 1000, "+keys+"}}", Options{})
		if got := x.Cells()[0].Spec.Apps["bulk"].MinSubflows; got != want {
			t.Errorf("%s: %d subflows, want %d", keys, got, want)
		}
	}
}

func TestSeeds(t *testing.T) {
	text := "seeds: 3\nlinks: {a: {ends: [client, server]}}" + bulk
	if n := len(mustLoad(t, text, Options{}).Cells()); n != 3 {
		t.Errorf("%d cells, want 3", n)
	}
	if n := len(mustLoad(t, text, Options{Seeds: 5}).Cells()); n != 5 {
		t.Errorf("%d cells with --seeds 5", n)
	}
}

// TestMistakeOfAnEvent: where a cell leaves out an event, those behind it keep the places that the file and --set give them, and a mistake that all cells have is told once.
func TestMistakeOfAnEvent(t *testing.T) {
	for event, want := range map[string]string{ // what the schema finds, and what it does not
		"link: a, set: {queue_bytes: 9}": ":9:30: timeline.1.set.queue_bytes: 9 is below the minimum 1514 (queue_bytes: the limit of the drop-tail queue in bytes)",
		"link: b, carrier: down":         ":9:15: timeline.1.link: there is no link b",
	} {
		_, err := loadText(t, `matrix: {outage: [false, true]}
params: {outage: true}
links: {a: {ends: [client, server]}}
timeline:
  - {at_s: 1, link: a, blackhole: both, when: outage}
  - {at_s: 3, `+event+`}
duration_s: 9
`, Options{})
		if err == nil || err.Error() != "test.yaml"+want {
			t.Errorf("%v\nwant test.yaml%s", err, want)
		}
	}
}

// TestNullIsAbsent: an empty value is as if the key were absent, also at the keys that are read before a cell is made.
func TestNullIsAbsent(t *testing.T) {
	for _, null := range []string{"", "null", "~"} {
		x := mustLoad(t, "topology: "+null+"\nskip: "+null+"\nlinks: {a: {ends: [client, server]}}\n"+
			"apps: {bulk: {type: download, from: server, to: client, bytes: 1000, when: "+null+"}}\n"+
			"timeline: [{at_s: 1, link: a, carrier: down, when: "+null+"}]\n", Options{})
		if cells := x.Cells(); len(cells) != 1 || len(cells[0].Spec.Apps) != 1 || len(cells[0].Spec.Timeline) != 1 {
			t.Errorf("%q: %+v", null, cells)
		}
	}
	_, err := load("test.yaml", ".", []byte("name: null\ngroup: stock\nquestion: Does it work?\nlinks: {a: {ends: [client, server]}}"+bulk), Options{})
	if want := "test.yaml:1:1: missing key name"; err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "base name") {
		t.Errorf("%v, want %s", err, want)
	}
}

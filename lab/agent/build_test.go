package agent

import (
	"encoding/json"
	"testing"

	"plait.dev/plait/lab/experiment"
)

// What is prepared does not depend on which of the cells that go on from it comes first.
func TestNetworkIsOfAllCells(t *testing.T) {
	for name, networks := range map[string]int{"epe-failure": 2, "epe-loss": 2} {
		e, err := experiment.Load(name, experiment.Options{})
		if err != nil {
			t.Fatal(err)
		}
		plans, jobs := map[string]bool{}, map[string]bool{}
		for _, c := range e.Cells() {
			n, err := NewNetwork(c.Spec)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := json.Marshal(n.Plan)
			if err != nil {
				t.Fatal(err)
			}
			job, err := json.Marshal(Job{Prepare: n})
			if err != nil {
				t.Fatal(err)
			}
			plans[string(plan)], jobs[string(job)] = true, true
		}
		if len(jobs) != len(plans) || len(jobs) != networks {
			t.Errorf("%s: its %d cells have %d plans and %d jobs that prepare one, want %d", name, len(e.Cells()), len(plans), len(jobs), networks)
		}
	}
}

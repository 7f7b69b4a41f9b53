package lab

import (
	"encoding/json"
	"testing"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/agent"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/vm"
)

// The guest speaks every second, too, while a command that builds the topology takes long: whoever says nothing for long is taken for hanging.
func TestSpeaksWhileBuilding(t *testing.T) {
	rung.VM(t)
	t.Parallel()
	e, err := experiment.Load("testdata/start.yaml", experiment.Options{Set: []string{"nodes={client: {run: [sleep 5]}}"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := New("test", 1)
	if err != nil {
		t.Fatal(err)
	}
	c := e.Cells()[0]
	b, err := l.Base(t.Context(), c.Spec.Kernel, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	job, err := json.Marshal(&agent.Job{Spec: c.Spec, Seed: c.Seed})
	if err != nil {
		t.Fatal(err)
	}
	before := 0 // lines before the cell's own time
	err = vm.Resume(t.Context(), b.state, job, vm.Options{}, func(line []byte) {
		var m agent.Message
		if err := json.Unmarshal(line, &m); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if m.Cell == nil && m.AtS == 0 {
			before++
		}
	})
	if err != nil || before < 4 || before > 6 {
		t.Errorf("%d lines in 5 s, %v", before, err)
	}
}

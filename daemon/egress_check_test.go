package daemon

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/bgp"
	"plait.dev/plait/egress/check"
)

// Every SID is in the sample, with destinations of both families, however many routes there are.
func TestSamples(t *testing.T) {
	exits1 := []egress.Exit{{Name: "a", RouteTarget: "65000:11", Locators: []netip.Prefix{netip.MustParsePrefix("fc00:1::/48")}, Table: 101},
		{Name: "b", RouteTarget: "65000:12", Locators: []netip.Prefix{netip.MustParsePrefix("fc00:2::/48")}, Table: 102}}
	plan, err := egress.NewPlan(exits1)
	if err != nil {
		t.Fatal(err)
	}
	var updates []egress.Update
	for i := range 400 {
		for j, prefix := range []string{"2001:db8:%x::/48", "10.%d.0.0/16"} {
			updates = append(updates, egress.Update{Key: egress.Key{Reflector: netip.MustParseAddr("2001:db8::2"), Distinguisher: "1:1", Prefix: netip.MustParsePrefix(fmt.Sprintf(prefix, i%256))},
				Route: &egress.Route{SID: netip.MustParseAddr(fmt.Sprintf("fc00:1:0:%d::", 1+j+i%2*2)), RouteTargets: []string{"65000:11"}}})
		}
	}
	plan.Apply(updates)
	x := &exits{plan: plan}
	out := []check.Exit{{Exit: exits1[0]}, {Exit: exits1[1]}}
	x.samples(out)
	if out[0].Routes != 512 || out[0].SIDs != 4 || len(out[0].Samples) != 4*samplesPerSID || out[1].Routes != 0 {
		t.Fatalf("got %d routes, %d SIDs, %v; want 512, 4 and %d of each", out[0].Routes, out[0].SIDs, out[0].Samples, samplesPerSID)
	}
	each := map[netip.Addr]int{}
	for _, s := range out[0].Samples {
		each[s.SID]++
	}
	for sid, n := range each {
		if n != samplesPerSID {
			t.Errorf("%d of SID %v, want %d", n, sid, samplesPerSID)
		}
	}
}

// Reading a full table for an operator takes half a second. Whoever acts on connections does not wait for that.
func TestQuestionsHoldNobodyUp(t *testing.T) {
	x := &exits{plan: emptyPlan(t), speaker: &bgp.Speaker{}}
	for name, question := range map[string]func(){"check": func() { x.checkInput() }, "routes": func() { x.entries(netip.Prefix{}) }} {
		x.writing.Lock() // so the question waits where it reads the plan
		answered := make(chan struct{})
		go func() { question(); close(answered) }()
		select {
		case <-answered:
			t.Errorf("%s read the plan under the lock that all need", name)
		case <-time.After(100 * time.Millisecond):
		}
		if !x.mu.TryLock() {
			t.Fatalf("%s keeps the lock that all need while it waits", name)
		}
		x.mu.Unlock()
		x.writing.Unlock()
		<-answered
	}
}

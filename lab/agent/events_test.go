package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/measure"
	"plait.dev/plait/lab/result"
)

func TestTimeline(t *testing.T) {
	events := []experiment.Event{{AtS: 3, Link: "late"}, {AtS: 1, JitterMs: 1000, Link: "early"}}
	drawn := map[float64]bool{}
	for seed := range 5 {
		got := timeline(events, seed)
		if got[0].Link != "early" || got[1].AtS != 3 || got[0].AtS < 1 || got[0].AtS >= 2 {
			t.Errorf("seed %d: %+v", seed, got)
		}
		if again := timeline(events, seed); again[0].AtS != got[0].AtS {
			t.Errorf("seed %d draws %g, then %g", seed, got[0].AtS, again[0].AtS)
		}
		drawn[got[0].AtS] = true
	}
	if len(drawn) != 5 {
		t.Errorf("five seeds draw %d times", len(drawn))
	}
	second := experiment.Event{JitterMs: 1000, Link: "second", Index: 1}
	alone, both := timeline([]experiment.Event{second}, 1)[0], timeline([]experiment.Event{{JitterMs: 1000}, second}, 1)
	if i := slices.IndexFunc(both, func(e experiment.Event) bool { return e.Link == "second" }); both[i].AtS != alone.AtS || both[0].AtS == both[1].AtS {
		t.Errorf("an event draws %g alone, and beside another one of %+v", alone.AtS, both)
	}
	if events[1].AtS != 1 {
		t.Error("the experiment's own timeline was changed")
	}
}

// TestAddressAtADrawnTime: an event with jitter took itself for one before it, and its own address for the one to be replaced.
func TestAddressAtADrawnTime(t *testing.T) {
	spec := &experiment.Spec{Links: map[string]*experiment.Link{"a": {Ends: []string{"x", "y"}, Index: 1, Forward: &experiment.Direction{}, Backward: &experiment.Direction{}}},
		Timeline: []experiment.Event{{AtS: 2, JitterMs: 500, Node: "x", On: "a", Address: "10.1.0.9/24"}, {AtS: 3, JitterMs: 500, Node: "x", On: "a", Address: "10.1.0.8/24", Index: 1}}}
	c, err := newCell(&network{}, spec, 1, host{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"addr del 10.1.0.1/24 dev a", "addr del 10.1.0.9/24 dev a"} {
		if steps, err := c.network.topology.EventSteps(c.timeline[i]); err != nil || steps[0].Lines[0] != want {
			t.Errorf("event %d: %v, %v, want %q", i, steps, err, want)
		}
	}
}

// An application that is over before its subflows are counted has none that anybody knows of.
func TestEndedBeforeSubflowsWereCounted(t *testing.T) {
	c := &cell{}
	_, ended := c.watchSubflows("never", 2)
	ended()
	if len(c.invalid) > 0 {
		t.Errorf("one that has not begun: %v", c.invalid)
	}
	began, ended := c.watchSubflows("short", 2)
	began()
	began()
	ended()
	if len(c.invalid) != 1 || !strings.Contains(c.invalid[0].Error(), "application short: ended within 1s of its start") {
		t.Errorf("one that ends at once: %v", c.invalid)
	}
}

func TestLate(t *testing.T) {
	event := experiment.Event{AtS: 2, Link: "line", Blackhole: "both"}
	for _, now := range []time.Duration{2 * time.Second, 2*time.Second + eventSlack} {
		if err := late(event, now); err != nil {
			t.Errorf("at %v: %v", now, err)
		}
	}
	if err := late(event, 5*time.Second); err == nil || !strings.Contains(err.Error(), "event at 2 s (line: blackhole both): it would come 3.0 s late") {
		t.Errorf("3 s late: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	rate, loss := 5.0, 1.0
	for want, e := range map[string]experiment.Event{
		"a: 5 Mbit/s":                            {Link: "a", Set: &experiment.Direction{RateMbps: &rate}},
		"a: 1 % loss":                            {Link: "a", Forward: &experiment.Direction{LossPercent: &loss}, Backward: &experiment.Direction{LossPercent: &loss}},
		"a: forward 5 Mbit/s":                    {Link: "a", Forward: &experiment.Direction{RateMbps: &rate}},
		"a: 1 % loss, backward 5 Mbit/s":         {Link: "a", Set: &experiment.Direction{LossPercent: &loss}, Backward: &experiment.Direction{RateMbps: &rate}},
		"a: forward 5 Mbit/s, backward 1 % loss": {Link: "a", Forward: &experiment.Direction{RateMbps: &rate}, Backward: &experiment.Direction{LossPercent: &loss}},
		"a: blackhole both":                      {Link: "a", Blackhole: "both"},
		"a: blackhole ends":                      {Link: "a", Blackhole: "none"},
		"a: carrier down":                        {Link: "a", Carrier: "down"},
		"isp withdraws access":                   {Router: "isp", Withdraw: "access"},
		"isp announces access":                   {Router: "isp", Announce: "access"},
		"client: address ::1/128":                {Node: "client", Address: "::1/128"},
		"client: true":                           {Node: "client", Run: "true"},
	} {
		if got := describe(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCompress(t *testing.T) {
	want := "some result, some result, some result"
	got, err := Expand(compress([]byte(want)))
	if err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Expand([]byte("noise")); err == nil {
		t.Error("noise was expanded")
	}
}

func TestRouteEvent(t *testing.T) {
	for want, e := range map[string]experiment.Event{
		measure.Announce: {Router: "isp", Announce: "access"},
		measure.Withdraw: {Router: "isp", Withdraw: "access"},
		measure.Fail:     {Link: "a", Carrier: "down"},
		measure.Recover:  {Link: "a", Carrier: "up"},
		"":               {Link: "a", Set: &experiment.Direction{}},
	} {
		if got := routeEvent(e); got != want {
			t.Errorf("%+v is %q, want %q", e, got, want)
		}
	}
	if routeEvent(experiment.Event{Blackhole: "both"}) != measure.Fail || routeEvent(experiment.Event{Blackhole: "none"}) != measure.Recover {
		t.Error("a blackhole is no failure, or its end no recovery")
	}
}

// TestGoodputs: measure.jain compares applications, connections, or all connections from one on.
func TestGoodputs(t *testing.T) {
	var series []result.Series
	for _, name := range []string{"file", "iperf/1", "iperf/2", "iperf/3", "iperf/10"} {
		series = append(series, result.Series{Name: name + ".cwnd_packets"}, result.Series{Name: name + ".goodput_mbps"})
	}
	for _, test := range []struct {
		names, want []string
		all         bool
	}{
		{[]string{"file", "iperf/1"}, []string{"file", "iperf/1"}, true},
		{[]string{"iperf/2.."}, []string{"iperf/2", "iperf/3"}, true},
		{[]string{"iperf/3..", "file"}, []string{"iperf/3", "file"}, true},
		{[]string{"iperf/4.."}, nil, false},
		{[]string{"file", "iperf"}, nil, false},
	} {
		found, all := goodputs(test.names, series)
		var got []string
		for _, s := range found {
			got = append(got, strings.TrimSuffix(s.Name, ".goodput_mbps"))
		}
		if !slices.Equal(got, test.want) || all != test.all {
			t.Errorf("%v: %v, %v, want %v, %v", test.names, got, all, test.want, test.all)
		}
	}
}

// The intervals in which an application starts or ends are no whole ones, whatever falls into them.
func TestFairnessWhileAllRun(t *testing.T) {
	c := &cell{spec: &experiment.Spec{Apps: map[string]*experiment.App{"a": {StopS: 9.5}, "b": {}}, Measure: experiment.Measure{Jain: []string{"b", "a/1.."}}}}
	c.out.Metrics = map[string]map[string]float64{"a": {"start_s": 0.5}, "b": {"start_s": 0, "completion_s": 8.05}}
	series := func(name string, values ...float64) {
		c.out.Series = append(c.out.Series, result.Series{Name: name + ".goodput_mbps", StartS: 1, StepS: 1, Values: values})
	}
	series("a/1", 2, 5, 5, 5, 5, 5, 5, 5, 5, 2)
	series("b", 5, 5, 5, 5, 5, 5, 5, 5, 0.25)
	c.fairness(nil)
	if f := c.out.Metrics["fairness"]; len(c.invalid) > 0 || f["jain_min"] != 1 || f["ratio_max"] != 1 || f["double_percent"] != 0 {
		t.Errorf("%v, %v", f, c.invalid)
	}
	if index := c.out.Series[len(c.out.Series)-1]; index.StartS != 2 || index.StepS != 1 || len(index.Values) != 7 {
		t.Errorf("%d seconds from the one that ends at %v s on are compared, every %v s", len(index.Values), index.StartS, index.StepS)
	}
}

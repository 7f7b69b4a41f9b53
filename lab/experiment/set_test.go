package experiment

import (
	"strings"
	"testing"
)

// refusesSet and acceptsSet load a file with --set.
func refusesSet(t *testing.T, text, want string, set ...string) {
	t.Helper()
	if _, err := loadText(t, text, Options{Set: set}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v: %v, want %q", set, err, want)
	}
}

func acceptsSet(t *testing.T, text string, set ...string) {
	t.Helper()
	if _, err := loadText(t, text, Options{Set: set}); err != nil {
		t.Errorf("%v: %v", set, err)
	}
}

// TestSetInsideOfAParameter: a key set in what a parameter stands for would be all that is left of it.
func TestSetInsideOfAParameter(t *testing.T) {
	const text = `params: {down: {rate_mbps: 5, delay_ms: 10, queue_packets: 50}}
links: {l: {ends: [client, server], forward: $down, backward: null}}
timeline: [{at_s: 1, link: l, set: $down}]` + bulk
	refusesSet(t, text, "--set links.l.forward.queue_packets=200: links.l.forward is $down, so there is no queue_packets in it", "links.l.forward.queue_packets=200")
	refusesSet(t, text, "timeline.0.set is $down", "timeline.0.set.delay_ms=1")
	refusesSet(t, text, "links.l.mtu is 1400", "links.l.mtu=1400", "links.l.mtu.bytes=9")
	acceptsSet(t, text, "down={rate_mbps: 5, delay_ms: 10, queue_packets: 200}")
	acceptsSet(t, text, "links.l.backward.queue_packets=200")
	acceptsSet(t, text, "links.l.forward={queue_packets: 200}", "links.l.forward.delay_ms=3")
}

// TestSetOfNoParameter: a parameter that a --set invents is used by nothing, and an axis of it would run every cell again.
func TestSetOfNoParameter(t *testing.T) {
	const text = `params: {rate: 1, down: {delay_ms: 3}}
matrix: {"loss,queue": [[0, 9], [1, 9]]}
variants: {one: {control: reno}, two: {control: cubic}}
links: {l: {ends: [client, server], rate_mbps: $rate, loss_percent: $loss, queue_packets: $queue, forward: $down}}
apps: {bulk: {type: download, from: server, to: client, bytes: 9, congestion: $control}}`
	refusesSet(t, text, "--set params.rat=5: there is no parameter rat; did you mean rate?", "params.rat=5")
	refusesSet(t, text, "there is no parameter typo", "variants.one.typo=5")
	refusesSet(t, text, "there is no parameter typo", "matrix.typo=[1, 2]")
	refusesSet(t, text, "there is no parameter typo", "matrix.rate,typo=[[1, 2]]")
	refusesSet(t, text, "there is no parameter down.delay_ms", "params.down.delay_ms=5")
	// The same in a section that is set as a whole.
	refusesSet(t, text, "--set params={rate: 1, rat: 5, down: {}}: there is no parameter rat; did you mean rate?", "params={rate: 1, rat: 5, down: {}}")
	refusesSet(t, text, "there is no parameter typo", "variants={one: {control: reno, typo: 3}}")
	refusesSet(t, text, "there is no parameter typo", "variants.one={control: reno, typo: 3}")
	refusesSet(t, text, `there is no parameter typo`, `matrix={"loss,queue": [[0, 9]], typo: [1, 2]}`)
	acceptsSet(t, text, "params={rate: 1, down: {}, new: 3}", "links.l.delay_ms=$new")
	acceptsSet(t, text, "params={rate: 2, down: {}}", "links.l.rate_mbps=5") // the file has it
	acceptsSet(t, text, "links.l.rate_mbps=5")
	acceptsSet(t, text, "params.rate=5")
	acceptsSet(t, text, "variants.one.rate=5")
	acceptsSet(t, text, "matrix.rate=[1, 2]")
	acceptsSet(t, text, "matrix.loss,queue=[[1, 2]]")
}

// TestSetChangesNothing: a --set that is overruled in every cell is a mistake, for the result would name it.
func TestSetChangesNothing(t *testing.T) {
	const text = `params: {rate: 1, delay: 2, control: bbr}
matrix: {"rate,loss": [[1, 0], [2, 1]]}
variants: {one: {control: reno, delay: 3}, two: {control: cubic}}
links: {l: {ends: [client, server], rate_mbps: $rate, delay_ms: $delay, loss_percent: $loss}}
apps: {bulk: {type: download, from: server, to: client, bytes: 9, congestion: $control}}`
	refusesSet(t, text, "--set params.rate=9: changes nothing, for the matrix has a value of rate; write --set rate=..., once", "params.rate=9")
	refusesSet(t, text, "--set params.control=vegas: changes nothing, for every variant has a value of control", "params.control=vegas")
	for _, overruled := range []string{"params.rate=4", "variants.one.rate=4", "matrix.rate=[7, 8]"} {
		refusesSet(t, text, "--set "+overruled+": changes nothing, for another --set has a value of rate", "rate=3", overruled)
		refusesSet(t, text, "--set "+overruled+": changes nothing, for another --set has a value of rate", overruled, "rate=3")
	}
	acceptsSet(t, text, "params.delay=9")
	acceptsSet(t, text, "rate=3", "matrix.rate,loss=[[7, 2], [8, 3]]") // for what is left of it
}

// TestSetIsOneList: the values of a parameter are the items of a list that is made around them, all of it.
func TestSetIsOneList(t *testing.T) {
	const text = "params: {loss: 0}\nlinks: {l: {ends: [client, server], loss_percent: $loss}}" + bulk
	for _, wrong := range []string{"1] #", "1], [2", "1]: [2", "]", "[", " # 1", "1\n]\n---\n[2", "1]\n---\n[2"} {
		refusesSet(t, text, "the value is not YAML", "loss="+wrong)
	}
	refusesSet(t, text, "--set loss=1,: there is no value behind the last comma", "loss=1,")
	refusesSet(t, text, "the value is not YAML", "loss=,1")
	refusesSet(t, text, "the value is not YAML", "seeds=1\n---\n2")
	for values, points := range map[string]int{"1": 1, "1,2": 2, " 1, 2 ": 2, "$(1 + 1), 3 # both": 2} {
		if x, err := loadText(t, text, Options{Set: []string{"loss=" + values}}); err != nil || len(x.points) != points {
			t.Errorf("%s: %v, want %d points", values, err, points)
		}
	}
}

// TestSetOfVariantsAtLaterPoints: at the first point skip may have left out one of the two that would be the same.
func TestSetOfVariantsAtLaterPoints(t *testing.T) {
	const text = `matrix: {rate: [1, 2]}
variants: {one: {control: reno}, two: {control: cubic}}
skip: variant == "two" && rate == 1
links: {l: {ends: [client, server], rate_mbps: $rate}}
apps: {bulk: {type: download, from: server, to: client, bytes: 9, congestion: $control}}`
	refusesSet(t, text, "--set control=reno: variants one and two would be the same", "control=reno")
	acceptsSet(t, text, "control=reno", "rate=1")
}

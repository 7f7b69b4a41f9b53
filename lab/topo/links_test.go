package topo

import (
	"strings"
	"testing"
)

func TestKind(t *testing.T) {
	for _, c := range []struct {
		name, link, timeline, kernel string
		want                         kind
		queue, joint                 [2]bool
	}{
		{name: "plain", want: direct},
		{name: "delay", link: "delay_ms: 5", want: staged},
		{name: "no rate, no queue", link: "queue_packets: 5", want: direct},
		{name: "rate forward", link: "forward: {rate_mbps: 5}", want: staged, queue: [2]bool{true, false}, joint: [2]bool{true, false}},
		{name: "rate and an event that changes no parameter", link: "rate_mbps: 5", timeline: "{at_s: 1, link: l, blackhole: both}", want: staged, queue: [2]bool{true, true}, joint: [2]bool{true, true}},
		{name: "rate and a carrier that goes", link: "rate_mbps: 5", timeline: "{at_s: 1, link: l, carrier: down}", want: staged, queue: [2]bool{true, true}},
		{name: "rate and a change", link: "rate_mbps: 5", timeline: "{at_s: 1, link: l, forward: {delay_ms: 5}}", want: staged, queue: [2]bool{true, true}},
		{name: "rate and loss", link: "{rate_mbps: 5, loss_percent: 1}", want: staged, queue: [2]bool{true, true}},
		{name: "rate later", timeline: "{at_s: 1, link: l, backward: {rate_mbps: 5}}", want: staged, queue: [2]bool{false, true}},
		{name: "rate later both", timeline: "{at_s: 1, link: l, set: {rate_mbps: 5}}", want: staged, queue: [2]bool{true, true}},
		{name: "cut later", timeline: "{at_s: 1, link: l, carrier: down}", want: staged},
		{name: "loss", link: "loss_percent: 1", want: staged},
		{name: "loss without netem seed", link: "loss_percent: 1", kernel: "6.1", want: emulated},
		{name: "queue in bytes", link: "{rate_mbps: 1, queue_bytes: 9000}", want: emulated, queue: [2]bool{true, true}},
		{name: "jitter later", timeline: "{at_s: 1, link: l, set: {jitter: {mean_ms: 1}}}", want: emulated},
	} {
		text := "links:\n  l: {ends: [a, b], " + strings.Trim(c.link, "{}") + "}\ntimeline: [" + c.timeline + "]\n"
		if c.link == "forward: {rate_mbps: 5}" {
			text = "links:\n  l: {ends: [a, b], forward: {rate_mbps: 5}}\n"
		}
		s := parse(t, text)
		if c.kernel != "" {
			s.Kernel = c.kernel
		}
		topology, err := New(s)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if l := topology.links[0]; l.kind != c.want || l.queue != c.queue || l.kind == staged && l.joint != c.joint {
			t.Errorf("%s: kind %d with queues %v, joint %v, want %d with %v, %v", c.name, l.kind, l.queue, l.joint, c.want, c.queue, c.joint)
		}
	}
}

// The losses of links, directions and seeds must differ, and be the same again for the same seed.
func TestLossSeeds(t *testing.T) {
	topology := read(t, "testdata/pair.yaml", "  lan: {ends: [client, far], loss_percent: 1}\n")
	seen := map[string]bool{}
	for seed := range uint64(10) {
		for _, l := range topology.links {
			steps := topology.LinkSteps(l.name, l.spec, seed)
			again := topology.LinkSteps(l.name, l.spec, seed)
			for i, line := range steps[0].Lines {
				if line != again[0].Lines[i] {
					t.Errorf("seed %d link %s: %s, then %s", seed, l.name, line, again[0].Lines[i])
				}
				if _, s, ok := strings.Cut(line, " seed "); ok {
					if seen[s] {
						t.Errorf("seed %d link %s: netem seed %s is in use", seed, l.name, s)
					}
					seen[s] = true
				}
			}
		}
	}
	if want := 10 * 2 * 2; len(seen) != want {
		t.Errorf("%d netem seeds, want %d: 10 seeds, 2 links, 2 directions", len(seen), want)
	}
}

// An event may take a parameter back to nothing.
func TestLinkStepsZero(t *testing.T) {
	topology := read(t, "testdata/pair.yaml", "")
	zero := parse(t, "links: {wan: {ends: [a, b], rate_mbps: 0, delay_ms: 0, loss_percent: 0}}").Links["wan"]
	steps := topology.LinkSteps("wan", zero, 1)
	want := []string{
		"qdisc replace dev l1fq root netem limit 1000 rate 0bit",
		"qdisc replace dev l1e2 root netem limit 1000000 delay 0ns",
		"qdisc replace dev l1bq root netem limit 1000 rate 0bit",
		"qdisc replace dev l1e1 root netem limit 1000000 delay 0ns",
	}
	if got := strings.Join(steps[0].Lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestQueue(t *testing.T) {
	topology := read(t, "testdata/pair.yaml", "")
	spec := parse(t, "links: {wan: {ends: [a, b], rate_mbps: 5, delay_ms: 20, queue_packets: 30, forward: {rate_mbps: 10}}}").Links["wan"]
	if _, ok := topology.Queue("wan", true, spec); ok {
		t.Error("a link that loses packets has a queue of package queue")
	}
	one := parse(t, "links: {wan: {ends: [a, b], rate_mbps: 5, delay_ms: 20, queue_packets: 30, forward: {rate_mbps: 10}}}")
	topology, err := New(one)
	if err != nil {
		t.Fatal(err)
	}
	want := map[bool]Queue{true: {NS: wire, Near: "l1e1", Far: "l1e2", Packets: 30, RateBps: 10_000_000}, false: {NS: wire, Near: "l1e2", Far: "l1e1", Packets: 30, RateBps: 5_000_000}}
	for forward, want := range want {
		if got, ok := topology.Queue("wan", forward, spec); got != want || !ok {
			t.Errorf("forward %v: %+v, %v, want %+v", forward, got, ok, want)
		}
	}
	steps := topology.LinkSteps("wan", spec, 1)
	options := []string{"qdisc replace dev l1e2 root netem limit 1000000 delay 20000000ns rate 10000000bit", "qdisc replace dev l1e1 root netem limit 1000000 delay 20000000ns rate 5000000bit"}
	if got := strings.Join(steps[0].Lines, "\n"); got != strings.Join(options, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(options, "\n"))
	}
}

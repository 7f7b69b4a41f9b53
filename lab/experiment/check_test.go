package experiment

import (
	"path/filepath"
	"strings"
	"testing"
)

const two = "links: {a: {ends: [client, server]}}\n"

// accepts and refuses load the rest of a file; a refusal must hold the place and the text.
func accepts(t *testing.T, rest string) {
	t.Helper()
	if _, err := loadText(t, rest, Options{}); err != nil {
		t.Errorf("%s\n%v", rest, err)
	}
}

func refuses(t *testing.T, rest, want string) {
	t.Helper()
	_, err := loadText(t, rest, Options{})
	if err == nil {
		t.Errorf("loads without a mistake:\n%s", rest)
	} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "test.yaml:") {
		t.Errorf("%v\ndoes not hold %q", err, want)
	}
}

// TestCommandMetrics: a command has what the lab knows of a foreign program, and what it reads from its output.
func TestCommandMetrics(t *testing.T) {
	command := two + "apps: {tool: {type: command, from: server, to: client, client_command: iperf3, results: {%}}}\n" +
		"bounds: [{because: it must, expect: 'tool.^ > 0'}]\n"
	file := func(results, metric string) string {
		return strings.NewReplacer("%", results, "^", metric).Replace(command)
	}
	for _, metric := range []string{"goodput_mbps", "bytes", "connect_ms", "longest_silence_ms", "min_second_mbps", "dup_acks"} {
		refuses(t, file("", metric), "bounds.0.expect")
		accepts(t, file(metric+": .end", metric))
	}
	for _, metric := range []string{"start_s", "completion_s"} {
		accepts(t, file("", metric))
		refuses(t, file(metric+": .end", metric), "the command has a metric "+metric+" already")
	}
	refuses(t, file("", "second_mbps[5]"), "bounds.0.expect")
	accepts(t, "measure: {sockets: true}\n"+file("", "second_mbps[5]"))
	refuses(t, "measure: {probe: true}\n"+file("dup_acks: .end", "dup_acks"), "already")
	accepts(t, "measure: {probe: true}\n"+file("", "dup_acks"))
}

// TestPathsIntoJSON: a path that is none would be told by the guest, after the command has run.
func TestPathsIntoJSON(t *testing.T) {
	file := two + "apps: {tool: {type: command, from: server, to: client, client_command: iperf3, results: {x: '%'}}}\n"
	for _, path := range []string{".", "..a", ".a.", ".a[b]", ".a[0", ".a[0]b"} {
		refuses(t, strings.ReplaceAll(file, "%", path), "apps.tool.results.x: expected .key or .key[0] at ")
	}
	accepts(t, strings.ReplaceAll(file, "%", ".end.streams[0][1].sender.a key"))
}

func TestCongestionWhereThereIsNone(t *testing.T) {
	refuses(t, two+"apps: {f: {type: download, from: server, to: client, bytes: 9, protocol: sctp, congestion: cubic}}",
		"test.yaml:5:80: apps.f.congestion: SCTP has its own congestion control")
	refuses(t, two+"apps: {f: {type: command, from: server, to: client, client_command: x, congestion: cubic}}",
		"test.yaml:5:72: apps.f.congestion: congestion is not for type command")
}

// TestNothingToSend: what an application could not do is told before it runs.
func TestNothingToSend(t *testing.T) {
	ping, bursts := "apps: {p: {type: ping, from: server, to: client, count: 3, gap_ms: %}}", "apps: {b: {type: bursts, from: server, to: client, bytes: 9, count: 3, gap_ms: 0, more_bytes: [1, %]}}"
	refuses(t, two+strings.ReplaceAll(ping, "%", "0"), "must be above 0")
	for _, app := range []string{ping, bursts} {
		accepts(t, two+strings.ReplaceAll(app, "%", "1"))
	}
	refuses(t, two+"apps: {c: {type: command, from: server, to: client, client_command: ' '}}", "apps.c.client_command: is empty")
	refuses(t, two+"apps: {f: {type: download, from: server, to: client, bytes: 9, stop_s: 0}}", "apps.f.stop_s: 0 is not after the start at 0 s")
	refuses(t, two+strings.ReplaceAll(bursts, "%", "0"), "apps.b.more_bytes.1: 0 is below the minimum 1")
	for _, much := range []string{"1000000000001", "9e18", "1e30"} { // the last is no number that Go decodes into an int64
		refuses(t, two+strings.ReplaceAll(bursts, "%", much), "apps.b.more_bytes.1: "+much+" is above the maximum 1000000000000")
	}
}

// TestQueueOfNoPacket: a queue shorter than a packet would drop all of them, after a handshake that succeeds.
func TestQueueOfNoPacket(t *testing.T) {
	file := "links: {a: {ends: [client, server], mtu: 9000, % queue_packets: 5}}\n" + strings.TrimSpace(bulk) + "\n"
	const want = "9013 is less than the 9014 bytes of the link's longest packet"
	refuses(t, strings.ReplaceAll(file, "% queue_packets: 5", "forward: {then: {queue_bytes: 9013}}"), "links.a.forward.then.queue_bytes: "+want)
	refuses(t, strings.ReplaceAll(file, "%", "")+"timeline: [{at_s: 1, link: a, set: {queue_bytes: 9013}}]", "timeline.0.set.queue_bytes: "+want)
	accepts(t, strings.ReplaceAll(file, "% queue_packets: 5", "queue_bytes: 9014"))
}

// TestStillTerminal: terminals below that speed made the link model look for them without end.
func TestStillTerminal(t *testing.T) {
	file := "links: {a: {ends: [client, server], wimax: {speed_max_kmh: %}}}\n" + strings.TrimSpace(bulk) + "\n"
	refuses(t, strings.ReplaceAll(file, "%", "1e-9"), "is below the minimum 0.1")
	accepts(t, strings.ReplaceAll(file, "%", "0.1"))
}

// TestCapturesApart: of two captures in one file the first would be lost.
func TestCapturesApart(t *testing.T) {
	file := "links: {b-c: {ends: [a, server]}, c: {ends: [a-b, server]}}\napps: {f: {type: download, from: server, to: a, bytes: 9}}\nmeasure: {pcap: [a/b-c, %]}\n"
	refuses(t, strings.ReplaceAll(file, "%", "a-b/c"), "measure.pcap.1: a-b/c would be written to the same file as a/b-c")
	refuses(t, strings.ReplaceAll(file, "%", "a/b-c"), "measure.pcap.1: ")
	accepts(t, strings.ReplaceAll(file, "%", "server/c"))
}

// TestJitterBeyondTheEnd: what may start after its end would have measured nothing with some seeds.
func TestJitterBeyondTheEnd(t *testing.T) {
	app := two + "apps: {f: {type: stream, from: server, to: client, rate_mbps: 1, start_s: 1, jitter_ms: 2000, %}}\n"
	refuses(t, strings.ReplaceAll(app, "%", "stop_s: 3"), "apps.f.stop_s: 3 is not after the latest start at 3 s (start_s and jitter_ms)")
	refuses(t, strings.ReplaceAll(app, ", %", "")+"duration_s: 3", "apps.f.start_s: the latest start at 3 s (start_s and jitter_ms) is not before the end of the cell at 3 s")
	accepts(t, strings.ReplaceAll(app, "%", "stop_s: 3.1"))
	event := two + strings.TrimSpace(bulk) + "\nduration_s: 3\ntimeline: [{at_s: %, link: a, blackhole: both}]\n"
	refuses(t, strings.ReplaceAll(event, "%", "1, jitter_ms: 2000"), "timeline.0.at_s: the latest time 3 s (at_s and jitter_ms) is not before the end of the cell at 3 s")
	refuses(t, strings.ReplaceAll(strings.ReplaceAll(event, "%", "1, jitter_ms: 1e14"), "duration_s: 3\n", ""), "is above the maximum 86400000") // ns of it are no int64: the event would come at once
	refuses(t, strings.ReplaceAll(event, "%", "3"), "timeline.0.at_s: 3 s is not before the end of the cell at 3 s")
	accepts(t, strings.ReplaceAll(event, "%", "1, jitter_ms: 1999"))
}

// TestTimeoutBeforeTheEnd: an hour of a run that can only be invalid would be lost.
func TestTimeoutBeforeTheEnd(t *testing.T) {
	const want = "s at the least, and with timeout_s the cell is invalid after 3600 s"
	file := two + "apps: {f: {from: server, to: client, %}}\n"
	for _, app := range []string{"type: stream, rate_mbps: 1, stop_s: 5000", "type: download, start_s: 100, stop_s: 3701", "type: ping, gap_ms: 1000, count: 3602",
		"type: bursts, bytes: 9, gap_ms: 1000, count: 4000, stop_s: 3900"} {
		refuses(t, strings.ReplaceAll(file, "%", app), want)
		accepts(t, strings.ReplaceAll(file, "%", app+", timeout_s: 5000"))
	}
	refuses(t, strings.ReplaceAll(file, "%", "type: stream, rate_mbps: 1")+"duration_s: 3601", want)
	for _, app := range []string{"type: download, start_s: 100, stop_s: 3700", "type: ping, gap_ms: 1000, count: 3601", "type: ping, gap_ms: 1000, count: 9999, stop_s: 9",
		"type: download, bytes: 9, stop_s: 9999", "type: command, client_command: x, stop_s: 9999"} {
		accepts(t, strings.ReplaceAll(file, "%", app))
	}
}

// TestTakenNames: of a link called default or sit0 the guest can make no interface.
func TestTakenNames(t *testing.T) {
	file := "links: {%: {ends: [client, server]}, b: {ends: [client, ^]}}\n" + strings.TrimSpace(bulk) + "\n"
	for _, names := range [][2]string{{"lo", "x"}, {"default", "x"}, {"sit0", "x"}, {"a", "wire"}} {
		refuses(t, strings.NewReplacer("%", names[0], "^", names[1]).Replace(file), "is a name of the kernel's or the lab's own")
	}
	accepts(t, strings.NewReplacer("%", "wire", "^", "default").Replace(file))
	accepts(t, strings.NewReplacer("%", "fifteen-letters", "^", "twenty-characters-ok").Replace(file))
	refuses(t, strings.NewReplacer("%", "sixteen-letters-", "^", "x").Replace(file), "has 16 characters")
}

// TestAddressesForHosts: with such prefixes every ping was lost, or the guest refused the address.
func TestAddressesForHosts(t *testing.T) {
	file := "links: {a: {ends: [client, server], %}}\n" + strings.TrimSpace(bulk) + "\n"
	for _, prefix := range []string{"prefix4: 224.0.0.0/24", "prefix4: 127.0.0.0/24", "prefix4: 0.0.0.0/24", "prefix4: 169.254.0.0/24",
		"prefix6: 'ff0e::/64'", "prefix6: 'fe80::/64'", "prefix6: '::/64'", "prefix6: '::ffff:10.0.0.0/120'"} {
		refuses(t, strings.ReplaceAll(file, "%", prefix), "no host can have an address of ")
	}
	accepts(t, strings.ReplaceAll(file, "%", "prefix4: 192.168.7.0/30, prefix6: 'fd00::/64'"))
}

func TestARMSSplits(t *testing.T) {
	refuses(t, two+"apps: {f: {type: arms, from: server, to: client, bytes: 9, protocol: sctp, split: static}}", "split static, and no other, needs a ratio")
	refuses(t, two+"apps: {f: {type: arms, from: server, to: client, bytes: 9, protocol: sctp, split: cwnd, ratio: [1, 2]}}", "split static, and no other, needs a ratio")
	refuses(t, two+"apps: {f: {type: arms, from: server, to: client, bytes: 9, protocol: sctp, split: static, ratio: [1, 0]}}", "use numbers above 0")
	refuses(t, two+"apps: {f: {type: arms, from: server, to: client, bytes: 9, protocol: tcp, split: equal}}", "arms speaks SCTP only")
}

// TestSecondsOfIntervals: goodput in a second is that of its intervals, which must not lie in two, or be longer.
func TestSecondsOfIntervals(t *testing.T) {
	file := two + "apps: {f: {type: download, from: server, to: client, stop_s: 9}, g: {type: download, from: server, to: client, stop_s: 9}}\nmeasure: {every_ms: %}\n"
	bound := "bounds: [{expect: 'f.second_mbps[2] > 1', because: x}]"
	for _, every := range []string{"300", "1500", "60000"} {
		refuses(t, strings.ReplaceAll(file, "%", every)+bound, "bounds.0.expect: second_mbps needs a measure.every_ms that is a divisor of 1000, not "+every)
		refuses(t, strings.ReplaceAll(file, "%", every+", jain: [f, g]"), "measure.every_ms: jain compares seconds")
		accepts(t, strings.ReplaceAll(file, "%", every))
	}
	accepts(t, strings.ReplaceAll(file, "%", "125, jain: [f, g]")+bound)
}

// TestLeadingZero: YAML reads 010 as 8.
func TestLeadingZero(t *testing.T) {
	app := two + "apps: {f: {type: download, from: server, to: client, bytes: %}}\n"
	refuses(t, strings.ReplaceAll(app, "%", "010"), "test.yaml:5:61: apps.f.bytes: 010 is 8 in YAML: write it without the zero")
	if _, err := loadText(t, strings.ReplaceAll(app, "%", "7"), Options{Set: []string{"apps.f.bytes=010"}}); err == nil || !strings.Contains(err.Error(), "010 is 8 in YAML") {
		t.Error(err)
	}
	for _, right := range []string{"10", "0o10", "0x10", "1_000", "08"} {
		accepts(t, strings.ReplaceAll(app, "%", right))
	}
	accepts(t, "sysctl: {net.x: '010'}\n"+strings.ReplaceAll(app, "%", "7"))
}

// TestElements: an element of a list is there once it is measured, and what is no list has none.
func TestElements(t *testing.T) {
	file := two + strings.TrimSpace(bulk) + "\nbounds: [{expect: '%', because: x}]"
	for _, right := range []string{"bulk.second_mbps[2]", "bulk.second_mbps[1200]", "run.bulk.second_mbps[-1]", "min(bulk.second_mbps[2:4])", "filter(bulk.second_mbps, # > 0)[1]"} {
		accepts(t, strings.ReplaceAll(file, "%", right+" >= 1"))
	}
	for wrong, want := range map[string]string{
		"bulk.goodput_mbps[2]": "bulk.goodput_mbps is one number, no list: it has no element 2; the goodput in every second of an application is its second_mbps",
		"bulk[0]":              "bulk is no list, so that it has no element 0",
		"bulk.second_mbps":     "a number is needed, not a list; take an element of it, as list[5], or a function of it, as min(list)",
		"series[2]":            "unknown name series",
	} {
		refuses(t, strings.ReplaceAll(file, "%", wrong+" >= bulk.bytes"), want)
	}
}

const speakers = two + `routers:
  server: {asn: 64496, announce: [a], peers: {client: {}}}
  client: {asn: 64497, peers: {}}
duration_s: 9
measure: {routes: [client]}
`

func TestFollowedRoutes(t *testing.T) {
	refuses(t, speakers, "test.yaml:9:11: measure.routes: no event of the timeline announces or withdraws")
	accepts(t, speakers+`timeline:
  - {at_s: 1, router: server, withdraw: a}
  - {at_s: 2, router: server, announce: a}
  - {at_s: 3, router: server, announce: "2001:db8:1::/64"}
`)
	accepts(t, speakers+`timeline: [{at_s: 1, router: server, withdraw: "2001:db8:1::/64"}]`) // which is a
	followed := strings.Replace(speakers, "[client]", "[client], prefix: a", 1)
	accepts(t, followed+"timeline: [{at_s: 1, link: a, carrier: down}, {at_s: 2, router: server, withdraw: a}]")
	refuses(t, followed+`timeline: [{at_s: 2, router: server, withdraw: "2001:db8:7::/64"}]`, "follow one prefix only, and there are a and 2001:db8:7::/64")
	refuses(t, strings.Replace(speakers, "[client]", "[client], prefix: b", 1), "measure.prefix: b is neither a link nor a prefix")
	refuses(t, speakers+`timeline:
  - {at_s: 1, router: server, withdraw: a}
  - {at_s: 2, router: server, announce: "2001:db8:7::/64"}
`, "test.yaml:12:31: timeline.1.announce: measure.routes can follow one prefix only, and there are a and 2001:db8:7::/64")
	refuses(t, speakers+`timeline: [{at_s: 2, router: server, announce: 10.9.0.0/24}]`, "10.9.0.0/24 is not an IPv6 prefix")
}

func TestPath(t *testing.T) {
	file := func(rest string) string {
		return "apps: {flow: {type: download, from: server, to: client, bytes: 9}}\n" + rest
	}
	line := "links: {a: {ends: [server, mid]}, b: {ends: [mid, client]}}\n"
	refuses(t, file(line), "test.yaml:4:45: apps.flow.to: there is no path from server to client: node mid does not forward (nodes.mid.forward: true)")
	refuses(t, file(line+"nodes: {client: {gateway: mid}}"), "node mid does not forward")
	refuses(t, file("links: {a: {ends: [server, mid]}, b: {ends: [other, client]}}"), "there is no path from server to client: no links join them")
	accepts(t, file(line+"nodes: {mid: {forward: true}}"))
	accepts(t, file(line+"nodes: {mid: {forward: true}, client: {gateway: mid}}"))
	accepts(t, file(line+"nodes: {mid: {sysctl: {net.ipv6.conf.all.forwarding: 1}}}"))
	accepts(t, file(line+"routers: {mid: {asn: 64496, peers: {}}}"))
	lan := "links: {lan: {ends: [server, x, left]}, far: {ends: [left, right]}, wan: {ends: [x, right, client]}}\n"
	refuses(t, file(lan), "node x does not forward")
	accepts(t, file(lan+"nodes: {x: {forward: true}}"))
	accepts(t, file(lan+"nodes: {left: {forward: true}, right: {forward: true}}"))
	refuses(t, file(lan+"nodes: {left: {forward: true}}"), "there is no path from server to client: node x")
}

// TestLabFiles: the files of the lab's own tests load; what is wrong with them shows in the guest.
func TestLabFiles(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		if _, err := Load(file, Options{}); err != nil {
			t.Error(err)
		}
	}
}

// TestGoodputOfPrograms: the lab counts at the sender what a program receives, if it is to look at sockets.
func TestGoodputOfPrograms(t *testing.T) {
	const app = two + "apps: {tool: {type: command, from: server, to: client, client_command: iperf3}}\n"
	const bound = "bounds: [{because: it must, expect: tool.goodput_mbps > 0}]\n"
	accepts(t, "measure: {sockets: true}\n"+app+bound)
	refuses(t, app+bound, "bounds.0.expect")
	accepts(t, "measure: {sockets: true, jain: [tool/2..]}\n"+app)
	accepts(t, "measure: {sockets: true}\n"+app+"plots: [{kind: series, show: [tool.goodput_mbps]}]\n")
	refuses(t, "measure: {jain: [tool/2..]}\n"+app, "connections such as tool/2.. are followed with measure.sockets only")
	refuses(t, "measure: {jain: [tool, tool/2]}\n"+app, "tool has no goodput: the lab does not count what a command receives without measure.sockets")
	refuses(t, "measure: {sockets: true, jain: [tool/2]}\n"+app, "fairness needs two applications")
}

// TestLAN: what a LAN brings to each of its ends can be bounded and drawn.
func TestLAN(t *testing.T) {
	const file = "links: {rack: {ends: [a, b, c]}}\nmeasure: {links: true}\napps: {p: {type: ping, from: a, to: b, count: 3, gap_ms: 9}}\n" +
		"bounds: [{because: it must, expect: rack.to_^_bytes > 0}]\nplots: [{kind: series, show: [rack.to_^_mbps]}]\n"
	accepts(t, strings.ReplaceAll(file, "^", "c"))
	refuses(t, strings.ReplaceAll(file, "^", "d"), "bounds.0.expect")
	refuses(t, "links: {rack: {ends: [a, b, c]}}\napps: {p: {type: ping, from: a, to: b, count: 3, gap_ms: 9}}\nbounds: [{because: it must, expect: rack.forward_bytes > 0}]\n", "bounds.0.expect")
}

// TestJainOfThoseThere: fairness is between the named applications that a cell has.
func TestJainOfThoseThere(t *testing.T) {
	file := func(jain string) string {
		return two + "params: {n: 1}\nmatrix: {n: [1, 2, 3]}\nmeasure: {jain: [" + jain + "]}\napps:\n" +
			"  one: {type: download, from: server, to: client, bytes: 9}\n" +
			"  two: {type: download, when: n > 1, from: server, to: client, bytes: 9}\n" +
			"  three: {type: stream, when: n > 2, from: server, to: client, rate_mbps: 1, stop_s: 2}\n" +
			"  tool: {type: command, when: n > 2, from: server, to: client, client_command: x}\n"
	}
	x := mustLoad(t, file("one, three, two")+"bounds: [{because: x, when: n > 1, expect: fairness.jain_mean > 0}]\n", Options{})
	for i, want := range []string{"", "one two", "one three two"} {
		spec := x.Cells()[i].Spec
		if got := strings.Join(spec.Measure.Jain, " "); got != want {
			t.Errorf("cell %d: %s, want %s", i, got, want)
		}
		if (spec.Metrics()[fairness] != nil) != (want != "") {
			t.Errorf("cell %d: fairness %v", i, spec.Metrics()[fairness])
		}
	}
	refuses(t, file("one, two")+"bounds: [{because: x, expect: fairness.jain_mean > 0}]\n", "limit it with when")
	refuses(t, file("one, tow"), "measure.jain.1: there is no application tow; did you mean two?")
	refuses(t, file("one, tool"), "measure.jain.1: tool has no goodput")
	refuses(t, file("one, one"), "measure.jain.1: one is listed twice")
	refuses(t, file("one, two/1"), "measure.jain.1: connections such as two/1 are followed with measure.sockets only")
	refuses(t, file("one, tow/1"), "measure.jain.1: ")
	refuses(t, file("one"), "measure.jain: fairness needs two applications")
}

func TestPlots(t *testing.T) {
	file := func(plot string) string {
		return two + "params: {n: 1, m: 1}\nmatrix: {n: [1, 2], m: [1, 2]}\nmeasure: {sockets: true}\napps:\n" +
			"  flow: {type: download, from: server, to: client, bytes: $(n * m)}\n" +
			"  late: {type: bursts, when: n > 1, from: server, to: client, bytes: 9, gap_ms: 9, count: 9}\n" +
			"plots:\n  - " + plot + "\n"
	}
	for _, plot := range []string{
		"{kind: series, show: [flow.goodput_mbps, flow/3.cwnd_packets, flow/*.srtt_ms, '*.goodput_mbps']}",
		"{kind: bars, show: [flow.goodput_mbps, late.mean_ms, a.forward_drops, client.timeouts, flow/1.delivered_bytes], x: n}",
		"{kind: cdf, show: [late.latency_ms], when: n == 2}",
		"{kind: heat, show: ['flow.*'], x: n, y: m}",
	} {
		accepts(t, file(plot))
	}
	for plot, want := range map[string]string{
		"{kind: bars, show: [flow.goodput_mbsp]}":               "12:25: plots.0.show.0: there is no metric called flow.goodput_mbsp, which is what kind: bars draws; did you mean flow.goodput_mbps?",
		"{kind: series, show: [flow.completion_s]}":             "there is no series called flow.completion_s, which is what kind: series draws",
		"{kind: cdf, show: [late.mean_ms]}":                     "there is no sample called late.mean_ms, which is what kind: cdf draws; late has first_last_ms, latency_ms",
		"{kind: box, show: [late.latency_ms], when: n == 1}":    "there is no sample called late.latency_ms",
		"{kind: series, show: [a.forward_mbps]}":                "there is no series called a.forward_mbps",
		"{kind: heat, show: [flow.goodput_mbps], x: n}":         "12:5: plots.0: a figure of kind heat needs x and y",
		"{kind: bars, show: [flow.goodput_mbps], when: n == 7}": "plots.0: applies at no point of the matrix",
		"{kind: bars, show: ['*.goodput']}":                     "there is no metric called *.goodput",
	} {
		refuses(t, file(plot), want)
	}
}

package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Metric is one number of a cell's result.
type Metric struct {
	Name string
	// Unit of the value; empty for counts and ratios.
	Unit    string
	Meaning string
}

// metricGroup is the metrics of one kind of thing under a condition.
type metricGroup struct {
	// Of says whose metrics these are, and when there are any.
	Of      string
	Metrics []Metric
}

var startMetrics = metricGroup{"every application", []Metric{
	{"start_s", "s", "When the application started, on the clock of the timeline."},
}}

var completionMetrics = metricGroup{"download, stream, bursts, command and arms", []Metric{
	{"completion_s", "s", "From the start to the last byte, or to the end of the client command."},
}}

// flowMetrics are counted where the lab itself receives: it does not see what other programs receive.
var flowMetrics = metricGroup{"download, stream, bursts and arms", []Metric{
	{"goodput_mbps", "Mbit/s", "Application data that arrived, divided by the time from the start to the last byte."},
	{"bytes", "bytes", "Application data that arrived."},
	{"longest_silence_ms", "ms", "The longest time without a byte at the receiver while some were due."},
	{"min_second_mbps", "Mbit/s", "Goodput of the worst whole second; none if the application lasted less than one."},
	{"connect_ms", "ms", "From the start to the connection being established; none if curl was ended early."},
}}

var probeMetrics = metricGroup{"download, stream, bursts and command, with measure.probe, unless protocol is sctp", []Metric{
	{"dup_acks", "", "Duplicate ACKs that arrived at the sender."},
	{"fast_retransmits", "", "Segments sent again by fast recovery."},
	{"timeout_retransmits", "", "Segments sent again after a retransmission timeout."},
	{"probe_retransmits", "", "Segments sent again as tail loss probes."},
}}

var socketsMetrics = metricGroup{"download, stream, bursts and command, with measure.sockets, unless protocol is sctp", []Metric{
	{"delivered_bytes", "bytes", "Payload that the sender's sockets have seen acknowledged; what MPTCP sent on two subflows counts on both."},
	{"spurious_retransmits", "", "Segments sent in vain: the peer's DSACKs say it had them."},
}}

// commandMetrics are of programs that receive themselves.
var commandMetrics = metricGroup{"command, with measure.sockets, unless protocol is sctp", []Metric{
	{"goodput_mbps", "Mbit/s", "delivered_bytes, divided by completion_s."},
}}

var mptcpMetrics = metricGroup{"applications with protocol mptcp", []Metric{
	{"subflows", "", "Subflows that were established, the first included."},
}}

var appMetrics = map[string]metricGroup{
	"download": {"download", []Metric{
		{"first_byte_ms", "ms", "From the start to the first byte of the answer."},
	}},
	"stream": {"stream", []Metric{
		{"delay_p50_ms", "ms", "Median time from a block being due at the sender to its last byte at the receiver."},
		{"delay_p95_ms", "ms", "95th percentile of that time."},
		{"delay_p99_ms", "ms", "99th percentile of that time."},
		{"delay_max_ms", "ms", "The longest such time."},
	}},
	"bursts": {"bursts", []Metric{
		{"count", "", "Bursts that arrived, without the warm-up."},
		{"mean_ms", "ms", "Mean latency of a burst, from its first byte given to the socket to its last byte at the receiver."},
		{"sd_ms", "ms", "Standard deviation of the latency."},
		{"p50_ms", "ms", "Median latency."},
		{"p95_ms", "ms", "95th percentile of the latency."},
		{"p99_ms", "ms", "99th percentile of the latency."},
		{"max_ms", "ms", "Largest latency."},
		{"first_last_mean_ms", "ms", "Mean time from the first to the last packet of a burst at the receiver."},
		{"first_last_sd_ms", "ms", "Standard deviation of that time."},
		{"first_last_p95_ms", "ms", "95th percentile of that time."},
		{"within_1s_percent", "%", "Bursts whose latency was at most one second, of those that had one."},
	}},
	"arms": {"arms", []Metric{
		{"primary_share", "", "Share of the bytes that were sent to the association's first address."},
	}},
	"ping": {"ping", []Metric{
		{"count", "", "Requests sent."},
		{"lost_percent", "%", "Requests without an answer, those still waited for at the end aside."},
		{"mean_ms", "ms", "Mean round-trip time."},
		{"sd_ms", "ms", "Standard deviation of the round-trip time."},
		{"min_ms", "ms", "Smallest round-trip time."},
		{"p50_ms", "ms", "Median round-trip time."},
		{"p95_ms", "ms", "95th percentile of the round-trip time."},
		{"p99_ms", "ms", "99th percentile of the round-trip time."},
		{"max_ms", "ms", "Largest round-trip time."},
	}},
}

var nodeMetrics = metricGroup{"every node (kernel counters over the whole cell)", []Metric{
	{"segments_sent", "", "TCP segments sent for the first time (TcpOutSegs)."},
	{"segments_retransmitted", "", "TCP segments sent again (TcpRetransSegs)."},
	{"fast_retransmits", "", "Segments sent again by fast recovery (TcpExtTCPFastRetrans)."},
	{"timeouts", "", "Retransmission timeouts (TcpExtTCPTimeouts)."},
	{"loss_probes", "", "Tail loss probes (TcpExtTCPLossProbes)."},
	{"spurious_retransmits", "", "Segments sent in vain: the peer's DSACKs say it had them (TcpExtTCPDSACKRecvSegs)."},
	{"dsacks_received", "", "DSACKs received (TcpExtTCPDSACKRecv)."},
	{"sack_recoveries", "", "Fast recoveries entered by SACK (TcpExtTCPSackRecovery)."},
}}

var routesMetrics = metricGroup{"nodes in measure.routes", []Metric{
	{"route_changes", "", "Changes of the node's routing tables while the applications ran."},
	{"announce_epe_ms", "ms", "From an announcement to the change of the table of an exit; median over the cell's events."},
	{"announce_best_ms", "ms", "From an announcement to the change of the main table; median over the cell's events."},
	{"withdraw_epe_ms", "ms", "From a withdrawal to the change of the table of an exit; median over the cell's events."},
	{"withdraw_best_ms", "ms", "From a withdrawal to the change of the main table; median over the cell's events."},
	{"fail_epe_ms", "ms", "From a link's failure (carrier down, blackhole) to the change of the table of an exit; median over the cell's events."},
	{"fail_best_ms", "ms", "From a link's failure to the change of the main table; median over the cell's events."},
	{"recover_epe_ms", "ms", "From a link's recovery (carrier up, blackhole none) to the change of the table of an exit; median over the cell's events."},
	{"recover_best_ms", "ms", "From a link's recovery to the change of the main table; median over the cell's events."},
	{"hole_ms", "ms", "The longest time without any route to the prefix in the main table."},
}}

var linkMetrics = metricGroup{"every link of two ends", []Metric{
	{"forward_bytes", "bytes", "Bytes that left the link from the first end to the second, link-layer headers included."},
	{"backward_bytes", "bytes", "The same from the second end to the first."},
	{"forward_packets", "", "Packets that left the link from the first end to the second."},
	{"backward_packets", "", "The same from the second end to the first."},
	{"forward_drops", "", "Packets dropped from the first end to the second: by the queue, by loss and by a blackhole."},
	{"backward_drops", "", "The same from the second end to the first."},
}}

var queueMetrics = metricGroup{"every link of two ends, with measure.links", []Metric{
	{"forward_queue_max_packets", "packets", "Longest queue from the first end to the second."},
	{"backward_queue_max_packets", "packets", "The same from the second end to the first."},
}}

// lanMetrics are those of a LAN for each of its ends: NODE stands for its name.
var lanMetrics = metricGroup{"every LAN (a link of more than two ends)", []Metric{
	{"to_NODE_bytes", "bytes", "Bytes that the LAN brought to a node, link-layer headers included."},
	{"to_NODE_packets", "", "Packets that it brought to the node."},
	{"to_NODE_drops", "", "0: a LAN has no queue."},
}}

var fairnessMetrics = metricGroup{"fairness, with measure.jain", []Metric{
	{"jain_mean", "", "Mean over time of Jain's index of the applications' goodputs (Jain, Chiu, Hawe 1984)."},
	{"jain_min", "", "Smallest value of the index."},
	{"ratio_max", "", "Largest ratio of the last one's goodput to the first's in one second; below 0.012 Mbit/s counts as that."},
	{"double_percent", "%", "Seconds in which the last one had more than twice the goodput of the first."},
}}

// fairness is the name the metrics of measure.jain have in a result.
const fairness = "fairness"

// metricGroups is all metrics there are.
func metricGroups() []metricGroup {
	return []metricGroup{
		startMetrics, completionMetrics, flowMetrics, appMetrics["download"], appMetrics["stream"], appMetrics["bursts"], appMetrics["arms"], appMetrics["ping"],
		mptcpMetrics, probeMetrics, socketsMetrics, commandMetrics, nodeMetrics, routesMetrics, linkMetrics, queueMetrics, lanMetrics, fairnessMetrics,
	}
}

// Metrics are the metrics the application has in a result of this cell's spec.
func (a *App) Metrics(measure Measure) []Metric {
	list := a.ownMetrics(measure)
	for _, name := range sortedKeys(a.Results) {
		list = append(list, Metric{Name: name, Meaning: fmt.Sprintf("Read from the command's output with %s.", a.Results[name])})
	}
	return list
}

// ownMetrics are those without the results that a command reads.
func (a *App) ownMetrics(measure Measure) []Metric {
	list := slices.Concat(appMetrics[a.Type].Metrics, startMetrics.Metrics)
	if a.Type != "ping" {
		list = append(list, completionMetrics.Metrics...)
		if measure.Probe && a.Protocol != "sctp" {
			list = append(list, probeMetrics.Metrics...)
		}
		if measure.Sockets && a.Protocol != "sctp" {
			list = append(list, socketsMetrics.Metrics...)
		}
	}
	if a.hasGoodput() {
		list = append(list, flowMetrics.Metrics...)
	} else if a.countedGoodput(measure) {
		list = append(list, commandMetrics.Metrics...)
	}
	if a.Protocol == "mptcp" {
		list = append(list, mptcpMetrics.Metrics...)
	}
	return list
}

// hasGoodput says that the lab receives the application's data itself, and so can count it.
func (a *App) hasGoodput() bool { return a.Type != "ping" && a.Type != "command" }

// countedGoodput says that the data of a program is counted at its sender's sockets.
func (a *App) countedGoodput(measure Measure) bool {
	return a.Type == "command" && measure.Sockets && a.Protocol != "sctp"
}

// Metrics are the metrics of a cell by the name they have in its result: application, node, link or fairness.
func (s *Spec) Metrics() map[string][]Metric {
	metrics := map[string][]Metric{}
	for name, app := range s.Apps {
		metrics[name] = app.Metrics(s.Measure)
	}
	for _, name := range s.NodeNames() {
		metrics[name] = slices.Clone(nodeMetrics.Metrics)
		if slices.Contains(s.Measure.Routes, name) {
			metrics[name] = append(metrics[name], routesMetrics.Metrics...)
		}
	}
	for name, link := range s.Links {
		if len(link.Ends) > 2 {
			metrics[name] = link.lanMetrics()
			continue
		}
		metrics[name] = slices.Clone(linkMetrics.Metrics)
		if s.Measure.Links {
			metrics[name] = append(metrics[name], queueMetrics.Metrics...)
		}
	}
	if len(s.Measure.Jain) > 0 {
		metrics[fairness] = fairnessMetrics.Metrics
	}
	return metrics
}

// Ended is when an application with these metrics did, in seconds of the timeline; infinity if nothing says it.
func (s *Spec) Ended(name string, metrics map[string]float64) float64 {
	end := math.Inf(1)
	if app := s.Apps[name]; app != nil && app.StopS > 0 {
		end = app.StopS
	}
	if s.DurationS > 0 {
		end = min(end, s.DurationS)
	}
	if took, done := metrics["completion_s"]; done {
		end = min(end, metrics["start_s"]+took)
	}
	return end
}

// lanMetrics are the metrics of a LAN.
func (l *Link) lanMetrics() []Metric {
	var list []Metric
	for _, node := range l.Ends {
		for _, m := range lanMetrics.Metrics {
			list = append(list, Metric{strings.Replace(m.Name, "NODE", node, 1), m.Unit, m.Meaning})
		}
	}
	return list
}

// isMetric says that some application, node or link has a metric of that name.
func isMetric(name string) bool {
	return slices.ContainsFunc(metricGroups(), func(g metricGroup) bool {
		return slices.ContainsFunc(g.Metrics, func(m Metric) bool { return m.Name == name })
	})
}

// NodeNames are the names of all nodes, sorted: those in nodes, at a link's end, or in routers.
func (s *Spec) NodeNames() []string {
	names := map[string]bool{}
	for name := range s.Nodes {
		names[name] = true
	}
	for name := range s.Routers {
		names[name] = true
	}
	for _, link := range s.Links {
		for _, end := range link.Ends {
			names[end] = true
		}
	}
	return sortedKeys(names)
}

// Package result is the result file of an experiment: what ran, what was measured, and which bounds hold.
//
// The format is stable: fields are added, never renamed or given another meaning; format counts up if that cannot be kept.
// It holds nothing that depends on the machine or the time it ran on, so the same experiment, seed and image give the same bytes.
package result

// Format is the version of the file format.
const Format = 1

// File is one result file.
type File struct {
	// Format is the version of this format.
	Format int `json:"format"`
	// Experiment that ran.
	Experiment Experiment `json:"experiment"`
	// Provenance says how the numbers can be had again.
	Provenance Provenance `json:"provenance"`
	// Cells are the runs: one per point of the matrix, variant and seed.
	Cells []Cell `json:"cells"`
	// Incomplete says how many runs there are of how many, if the experiment was ended before its last one. No bound is
	// evaluated then.
	Incomplete string `json:"incomplete,omitempty"`
	// Bounds are the conditions, evaluated: one entry per bound and point of the matrix.
	Bounds []Bound `json:"bounds"`
	// Paper compares published numbers with ours.
	Paper []Published `json:"paper,omitempty"`
}

// Experiment identifies the question.
type Experiment struct {
	Name     string `json:"name"`
	Group    string `json:"group"`
	Question string `json:"question"`
	About    string `json:"about,omitempty"`
	// Source is the experiment file as it was read, behind it its topology file and, a comment each, what --set replaced beside parameters.
	Source string `json:"source"`
	// Topology is the network of the first cell, as text, for the figure.
	Topology Topology `json:"topology"`
	// Matrix holds the names of the parameters that tell the points of the matrix apart; others may follow from them.
	Matrix []string `json:"matrix,omitempty"`
	// Plots are the figures the experiment asks for; without any the report chooses.
	Plots []Plot `json:"plots,omitempty"`
}

// Topology is the network as a reader needs to see it.
type Topology struct {
	// Nodes in the order they are to be drawn from; the first one stands at the left.
	Nodes []Node `json:"nodes,omitempty"`
	// Links in the order of the experiment file.
	Links []Link `json:"links,omitempty"`
}

// Node is a host or a router.
type Node struct {
	Name string `json:"name"`
	// Kind is host or router.
	Kind string `json:"kind"`
	// ASN is the router's autonomous system number.
	ASN uint32 `json:"asn,omitempty"`
}

// Link joins two nodes, or more (a LAN).
type Link struct {
	Name string `json:"name"`
	// Ends are the names of the nodes.
	Ends []string `json:"ends"`
	// Forward says what happens to packets from the first end to the second, in short parts separated by ", ", e.g.
	// "30 Mbit/s, 10 ms, 100 packets"; empty if nothing does, "unlimited" if that is so in this direction only.
	Forward string `json:"forward,omitempty"`
	// Backward is the same for the other direction; empty if it equals forward.
	Backward string `json:"backward,omitempty"`
}

// Plot is one figure the experiment asks for.
type Plot struct {
	// Kind is series (over time), cdf, bars, box or heat (a metric over two parameters).
	Kind string `json:"kind"`
	// Title of the figure.
	Title string `json:"title,omitempty"`
	// Show lists the metrics, samples or series drawn, as <app>.<name>; * stands for any run of characters.
	Show []string `json:"show"`
	// X is the parameter along the axis (bars, heat).
	X string `json:"x,omitempty"`
	// Y is the parameter along the other axis (heat).
	Y string `json:"y,omitempty"`
	// LogY draws a logarithmic axis of values.
	LogY bool `json:"log_y,omitempty"`
	// Points are the points of the matrix the figure is limited to, each as the parameters that tell it; without any, all.
	Points []map[string]any `json:"points,omitempty"`
}

// Provenance is everything needed to run it again.
type Provenance struct {
	// Command line, as it can be typed again.
	Command string `json:"command"`
	// Seeds of the cells.
	Seeds []int `json:"seeds"`
	// Kernel release of the guest (uname -r).
	Kernel string `json:"kernel"`
	// Image is the SHA-256 of the guest image: kernel, root file system and agent, which is the build of plait that ran.
	Image string `json:"image"`
	// Plait is the version of plait.
	Plait string `json:"plait"`
	// QEMU is the version of the emulator.
	QEMU string `json:"qemu"`
	// Recordings are those that links replay, in the order of their names.
	Recordings []Recording `json:"recordings,omitempty"`
	// ClockBase is the date at which every guest's clock starts.
	ClockBase string `json:"clock_base"`
}

// Recording is a recorded link that was replayed.
type Recording struct {
	// File is its name, as the experiment or its parameters have it.
	File string `json:"file"`
	// SHA256 of the file, in hexadecimal.
	SHA256 string `json:"sha256"`
}

// Cell is one run.
type Cell struct {
	// Params are the parameters of the cell.
	Params map[string]any `json:"params"`
	// Variant is the alternative that ran.
	Variant string `json:"variant"`
	// Seed of every random process in the cell.
	Seed int `json:"seed"`
	// Invalid says which precondition failed; such a cell has no numbers.
	Invalid string `json:"invalid,omitempty"`
	// VirtualS is how long the cell took in virtual time, from the beginning of the timeline to the end of the last application or event.
	VirtualS float64 `json:"virtual_s"`
	// Metrics are the scalars: application, node, link or "fairness" -> metric -> value. Units are in the names.
	Metrics map[string]map[string]float64 `json:"metrics,omitempty"`
	// Series are the measurements over time, sorted by name.
	Series []Series `json:"series,omitempty"`
	// Samples are the single measurements behind a distribution, sorted by name.
	Samples []Samples `json:"samples,omitempty"`
	// Marks are instants worth drawing: the timeline's events and route changes.
	Marks []Mark `json:"marks,omitempty"`
}

// Series is one quantity over time.
type Series struct {
	// Name is <application, node or link>.<quantity>, e.g. bulk.goodput_mbps or bulk/2.cwnd_packets for a subflow.
	Name string `json:"name"`
	// Unit of the values.
	Unit string `json:"unit"`
	// Label says what the series belongs to where the name is only a number, e.g. a subflow: "2001:db8:1::a -> 2001:db8:c::2".
	Label string `json:"label,omitempty"`
	// StartS is the time of the first value: the end of the first interval for rates, the instant for states.
	StartS float64 `json:"start_s"`
	// StepS between values; 0 if times are given.
	StepS float64 `json:"step_s,omitempty"`
	// TimesS are the times of the values where they are not evenly spaced.
	TimesS []float64 `json:"times_s,omitempty"`
	// Values, rounded to what is significant.
	Values []float64 `json:"values"`
}

// Samples are single measurements of one quantity, in order.
type Samples struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

// Mark is an instant with a name.
type Mark struct {
	AtS  float64 `json:"at_s"`
	Text string  `json:"text"`
}

// Bound is one condition at one point of the matrix.
type Bound struct {
	Expression string         `json:"expression"`
	Because    string         `json:"because"`
	Params     map[string]any `json:"params,omitempty"`
	Left       float64        `json:"left"`
	Operator   string         `json:"operator"`
	Right      float64        `json:"right"`
	OK         bool           `json:"ok"`
	// Seed is the one with the least to spare, where the bound must hold with every one; Left and Right are its numbers. If the bound is invalid for a run it is that of the run. Otherwise 0, and they are those of the means.
	Seed int `json:"seed,omitempty"`
	// Invalid says why it could not be evaluated; such a bound does not hold.
	Invalid string `json:"invalid,omitempty"`
}

// Published is a number of a paper beside ours.
type Published struct {
	Metric    string         `json:"metric"`
	Params    map[string]any `json:"params,omitempty"`
	Source    string         `json:"source"`
	Published float64        `json:"published"`
	Ours      float64        `json:"ours"`
}

// Package experiment reads experiment files: one question per YAML file, with the topology, the traffic, the
// timeline, what is measured, the parameter matrix and the bounds that decide whether the answer is yes.
//
// The types in this file are the schema. schema.json and docs/lab/reference.md are generated from them
// (go generate ./lab/experiment); every field is described by its comment and limited by its tag.
package experiment

// Spec is one experiment file, or one cell of it once the parameters are filled in.
//
// In the values of kernel, sysctl, nodes, links, routers, apps, timeline, measure and duration_s, $name stands for the
// parameter of that name and $(expression) for an expression over the parameters, in the language of the bounds; $$ is a
// dollar sign. A value that is nothing else keeps the parameter's type, and a key whose value becomes null is left out.
type Spec struct {
	// Name of the experiment: lower-case letters, digits and dashes. Must equal the file's base name.
	Name string `json:"name" jsonschema:"required,pattern=^[a-z0-9][a-z0-9-]*$"`
	// Group the experiment belongs to: stock (what Linux does today), egress, congestion, ackpath, stripe, tables (of policy rtcp), or your own.
	Group string `json:"group" jsonschema:"required,pattern=^[a-z0-9][a-z0-9-]*$"`
	// Question the experiment answers, as one sentence.
	Question string `json:"question" jsonschema:"required"`
	// About says in a few sentences what is compared, why, and what the reader should look at. It opens the report.
	About string `json:"about,omitempty"`
	// Topology names a file with nodes, links and routers that this file builds on: one of plait's own
	// (`plait lab list --topologies`) or a path relative to this file. What this file declares is added to it and wins.
	Topology string `json:"topology,omitempty"`
	// Params are the parameters and their default values; the matrix, the variants and --set replace them.
	Params map[string]any `json:"params,omitempty"`
	// Matrix maps a parameter, or a comma-separated list of parameters that go together, to the list of its values:
	// loss: [0, 1] or "rate,delay": [[10, 50], [100, 5]] or with {rate: 10, delay: 50} for each. The cells are the product
	// of all lists. $traces as a list stands for the recordings in the directory given with --traces.
	Matrix map[string][]any `json:"matrix,omitempty"`
	// Variants are the alternatives compared at every point of the matrix, with the same seeds: name -> parameters.
	// Bounds refer to the metrics of a variant by its name. Without it there is one variant called "run".
	Variants map[string]map[string]any `json:"variants,omitempty"`
	// Skip leaves out the cells for which this expression over the parameters (and `variant`) is true.
	Skip string `json:"skip,omitempty"`
	// Seeds is how many seeds every cell runs with (1 to N); --seeds replaces it.
	Seeds int `json:"seeds,omitempty" jsonschema:"minimum=1,maximum=10000,default=1"`
	// Kernel the guest runs: 6.1 (Debian 12, and with it FRR 8.4 of Debian 12), 6.12 (Debian 13) or 7.2 (Debian 13 backports, 7.2 or what newer one they have when the image is made).
	Kernel string `json:"kernel,omitempty" jsonschema:"enum=6.1,enum=6.12,enum=7.2,default=6.12"`
	// Sysctl is set in every network namespace, e.g. net.ipv4.tcp_slow_start_after_idle: 0.
	Sysctl map[string]any `json:"sysctl,omitempty"`
	// Nodes are the hosts. A name that appears only in links or routers needs no entry.
	Nodes map[string]*Node `json:"nodes,omitempty"`
	// Links join two nodes, or more (a LAN). The interface on each node has the link's name.
	Links map[string]*Link `json:"links,omitempty"`
	// Routers are the nodes that run FRR.
	Routers map[string]*Router `json:"routers,omitempty"`
	// Apps are the traffic: name -> application.
	Apps map[string]*App `json:"apps,omitempty"`
	// Timeline is what happens while the applications run. Times count from the moment the topology is ready.
	Timeline []Event `json:"timeline,omitempty"`
	// Measure says what is recorded beyond each application's own metrics.
	Measure Measure `json:"measure,omitempty"`
	// DurationS is the longest a cell may take, in seconds of virtual time: it ends with its last application or event of the timeline, whichever is later, or then. Without applications it lasts that long.
	DurationS float64 `json:"duration_s,omitempty" jsonschema:"exclusiveMinimum=0,maximum=86400"`
	// Bounds decide: the run fails (exit status 1) if one does not hold.
	Bounds []Bound `json:"bounds,omitempty"`
	// Paper gives published numbers to show beside ours.
	Paper []Published `json:"paper,omitempty"`
	// Plots chooses what the report draws; without it every series and the main metric of each application.
	Plots []Plot `json:"plots,omitempty"`
}

// Node is a host: a network namespace of its own.
type Node struct {
	// Forward makes the node route packets between its links. Nodes with routes through it get them by shortest path.
	Forward bool `json:"forward,omitempty"`
	// Sysctl is set in this node, after the experiment's own.
	Sysctl map[string]any `json:"sysctl,omitempty"`
	// MPTCP configures the in-kernel path manager of this node (ip-mptcp(8)).
	MPTCP *MPTCP `json:"mptcp,omitempty"`
	// Exits are the egress peers this content server may use. For each: a VRF that imports the exit's routes, an EPE
	// address whose packets are looked up there and nowhere else, and an MPTCP endpoint that announces it.
	// The node must also be a router (an iBGP client of the reflector).
	Exits []string `json:"exits,omitempty"`
	// Gateway is the node this host's default route points to, on a link they share.
	Gateway string `json:"gateway,omitempty"`
	// PerLinkRoutes gives every address of the node a routing table of its own, so that packets leave by the link their
	// source address belongs to.
	PerLinkRoutes bool `json:"per_link_routes,omitempty"`
	// Run lists shell commands run in the node, in order, before the applications; one that fails makes the run invalid.
	Run []string `json:"run,omitempty"`
}

// MPTCP holds the limits and endpoints of the in-kernel path manager.
type MPTCP struct {
	// Subflows is how many additional subflows a connection may have.
	Subflows int `json:"subflows" jsonschema:"minimum=0,maximum=8"`
	// AddAddrAccepted is how many announced addresses of the peer are used.
	AddAddrAccepted int `json:"add_addr_accepted" jsonschema:"minimum=0,maximum=8"`
	// Subflow lists links whose address opens an additional subflow.
	Subflow []string `json:"subflow,omitempty"`
	// Signal lists links whose address is announced to the peer.
	Signal []string `json:"signal,omitempty"`
	// Backup lists links whose address opens a subflow that carries data only if no other does.
	Backup []string `json:"backup,omitempty"`
	// Fullmesh lists links whose address opens a subflow to every address of the peer.
	Fullmesh []string `json:"fullmesh,omitempty"`
}

// Link joins nodes. The keys of a direction given here hold for both directions; forward and backward replace them.
type Link struct {
	// Ends are the nodes joined, in order: forward is from the first to the second. More than two make a LAN, which only has mtu.
	Ends []string `json:"ends" jsonschema:"required,minItems=2"`
	// MTU in bytes.
	MTU int `json:"mtu,omitempty" jsonschema:"minimum=1280,maximum=9000,default=1500"`
	// Prefix6 is the IPv6 prefix of the link. Default 2001:db8:K::/64 with K the link's place in the file, in decimal digits; end number i has address ::i.
	Prefix6 string `json:"prefix6,omitempty"`
	// Prefix4 is the IPv4 prefix of the link. Default 10.K.0.0/24.
	Prefix4 string `json:"prefix4,omitempty"`
	Direction
	// Forward replaces parameters in the direction from the first end to the second.
	Forward *Direction `json:"forward,omitempty"`
	// Backward replaces parameters in the direction from the second end to the first.
	Backward *Direction `json:"backward,omitempty"`
	// Index is the link's place in the file, from 1. Set by Load.
	Index int `json:"index,omitempty" jsonschema:"-"`
}

// Direction says what happens to packets in one direction of a link. Models apply in the order in which a packet meets
// them: the queue and the capacity (rate_mbps, trace, cellular or wimax), the channel's losses, jitter and reordering, the
// propagation delay; then a further direction nested behind it (then).
type Direction struct {
	// RateMbps is the capacity of a fixed-rate link; absent is unlimited. A packet takes its length divided by the rate, link-layer header (14 bytes) included.
	RateMbps *float64 `json:"rate_mbps,omitempty" jsonschema:"minimum=0.008,maximum=1000"`
	// DelayMs is the propagation delay.
	DelayMs *float64 `json:"delay_ms,omitempty" jsonschema:"minimum=0,maximum=60000"`
	// QueuePackets is the limit of the drop-tail queue in packets, the one in transmission included. Default 1000, if queue_bytes is absent.
	QueuePackets *int `json:"queue_packets,omitempty" jsonschema:"minimum=1,maximum=1000000"`
	// QueueBytes is the limit of the drop-tail queue in bytes.
	QueueBytes *int `json:"queue_bytes,omitempty" jsonschema:"minimum=1514,maximum=1000000000"`
	// LossPercent is independent random loss, after the queue.
	LossPercent *float64 `json:"loss_percent,omitempty" jsonschema:"minimum=0,maximum=100"`
	// GilbertElliott is loss by a two-state Markov channel, after the queue.
	GilbertElliott *GilbertElliott `json:"gilbert_elliott,omitempty"`
	// Jitter is random additional delay.
	Jitter *Jitter `json:"jitter,omitempty"`
	// Reorder lets some packets overtake.
	Reorder *Reorder `json:"reorder,omitempty"`
	// Trace replays recorded delivery opportunities as the capacity.
	Trace *Trace `json:"trace,omitempty"`
	// Cellular is a stochastic model of a cellular link as the capacity.
	Cellular *Cellular `json:"cellular,omitempty"`
	// WiMAX is the mobile WiMAX link of the R-TCP thesis (section 5.2) as the capacity.
	WiMAX *WiMAX `json:"wimax,omitempty"`
	// Then is a further direction the packet goes through next.
	Then *Direction `json:"then,omitempty"`
}

// GilbertElliott is the two-state loss channel of Gilbert and Elliott. The state moves once per frame.
type GilbertElliott struct {
	// PPercent is the probability of going from the good to the bad state, per frame.
	PPercent float64 `json:"p_percent" jsonschema:"required,minimum=0,maximum=100"`
	// RPercent is the probability of going from the bad to the good state, per frame.
	RPercent float64 `json:"r_percent" jsonschema:"required,minimum=0,maximum=100"`
	// LossGoodPercent is the loss in the good state (1-k).
	LossGoodPercent float64 `json:"loss_good_percent,omitempty" jsonschema:"minimum=0,maximum=100"`
	// LossBadPercent is the loss in the bad state (1-h).
	LossBadPercent float64 `json:"loss_bad_percent" jsonschema:"required,minimum=0,maximum=100"`
	// MACAttempts is how often the link layer tries each frame, loss drawn anew each time in the state of the frame; 1 is no retransmission.
	MACAttempts int `json:"mac_attempts,omitempty" jsonschema:"minimum=1,maximum=16,default=1"`
}

// Jitter adds a random delay to each packet.
type Jitter struct {
	// MeanMs is the mean of the exponentially distributed additional delay.
	MeanMs float64 `json:"mean_ms" jsonschema:"required,minimum=0,maximum=10000"`
	// MaxMs caps the additional delay. Default 10 x mean_ms.
	MaxMs *float64 `json:"max_ms,omitempty" jsonschema:"minimum=0,maximum=60000"`
	// InOrder keeps packets in order: none leaves before one that came earlier.
	InOrder bool `json:"in_order,omitempty"`
}

// Reorder makes some packets late, so that later ones overtake them.
type Reorder struct {
	// Percent of the packets that are held back.
	Percent float64 `json:"percent" jsonschema:"required,minimum=0,maximum=100"`
	// ExtraMs is how long they are held back.
	ExtraMs float64 `json:"extra_ms" jsonschema:"required,minimum=0,maximum=10000"`
}

// Trace is a recording in mahimahi format: one line per opportunity to deliver 1500 bytes (payload of the IP layer), in
// milliseconds from the start; at its end it starts over.
type Trace struct {
	// File is the path of the recording, plain or .gz, relative to the experiment file or to the directory given with --traces, or the name of one of plait's own (steps.down).
	File string `json:"file" jsonschema:"required"`
	// StartS starts that far into the recording; with several seeds each seed adds seed_step_s.
	StartS float64 `json:"start_s,omitempty" jsonschema:"minimum=0,maximum=86400"`
	// SeedStepS is added to the start once per seed after the first.
	SeedStepS float64 `json:"seed_step_s,omitempty" jsonschema:"minimum=0,maximum=86400"`
	// OpportunitiesMs is the recording itself. Set by Load.
	OpportunitiesMs []uint32 `json:"opportunities_ms,omitempty" jsonschema:"-"`
}

// Cellular is a seeded stochastic process for the rate and the outages of a cellular link, calibrated against recordings
// of moving users (docs/lab/link/cellular.md).
type Cellular struct {
	// Profile is the recorded network and direction whose statistics are followed.
	Profile string `json:"profile" jsonschema:"required,enum=verizon-lte-down,enum=verizon-lte-up,enum=tmobile-lte-down,enum=tmobile-lte-up,enum=att-lte-driving-down,enum=att-lte-driving-up"`
	// RateScale multiplies the rate.
	RateScale float64 `json:"rate_scale,omitempty" jsonschema:"minimum=0.001,maximum=100,default=1"`
	// NoOutages leaves the outages out.
	NoOutages bool `json:"no_outages,omitempty"`
}

// WiMAX is a mobile WiMAX link with random-waypoint movement, COST231-Hata path loss, adaptive modulation every 20 ms and ARQ.
type WiMAX struct {
	// SpeedMaxKmh is the upper limit of the random speed.
	SpeedMaxKmh float64 `json:"speed_max_kmh,omitempty" jsonschema:"minimum=0.1,maximum=300,default=20"`
	// CellRadiusM is the radius of the cell the user moves in.
	CellRadiusM float64 `json:"cell_radius_m,omitempty" jsonschema:"minimum=50,maximum=20000,default=1400"`
	// ARQRetries is how often a packet is sent again at most.
	ARQRetries int `json:"arq_retries,omitempty" jsonschema:"minimum=1,maximum=16,default=4"`
}

// Router is a node that runs FRR's BGP daemon (and OSPF-free static reachability inside its AS: iBGP neighbours share a link).
type Router struct {
	// ASN is the autonomous system number.
	ASN uint32 `json:"asn" jsonschema:"required,minimum=1,maximum=4294967295"`
	// Peers are the BGP neighbours by node name, on a link they share. A session declared at one end exists at both.
	Peers map[string]*Peer `json:"peers" jsonschema:"required"`
	// Announce lists what this router originates: link names or prefixes.
	Announce []string `json:"announce,omitempty"`
	// Reflector makes this router a route reflector for its iBGP neighbours.
	Reflector bool `json:"reflector,omitempty"`
	// Transit makes this router tell its eBGP neighbours every route it knows. Without it they only hear what the routers of its own AS announce.
	Transit bool `json:"transit,omitempty"`
	// Locator is the SRv6 locator (a /48) the SIDs of this router's exits are taken from.
	Locator string `json:"locator,omitempty"`
	// OwnSpeaker leaves BGP on this node to a program that its run starts: no FRR runs there, its neighbours expect a session.
	OwnSpeaker bool `json:"own_speaker,omitempty"`
}

// Peer is one BGP neighbour.
type Peer struct {
	// LocalPref of the routes this neighbour announces (eBGP). Absent is 100.
	LocalPref *int `json:"local_pref,omitempty" jsonschema:"minimum=0,maximum=4294967295"`
	// Exit names this egress peer: its routes live in a VRF of their own and are offered to content servers as IPv6 VPN routes with an SRv6 SID (RFC 9252).
	Exit string `json:"exit,omitempty" jsonschema:"pattern=^[a-z0-9]{1\\,8}$"`
}

// App is one application: a sender and a receiver of data. Which keys matter depends on the type:
// download (HTTP, the receiver asks), stream (constant bit rate), bursts (interactive), ping, command (any programs), arms (one SCTP
// association over all of the receiver's addresses).
type App struct {
	// Type of the application.
	Type string `json:"type" jsonschema:"required,enum=download,enum=stream,enum=bursts,enum=ping,enum=command,enum=arms"`
	// When leaves the application out of cells for which this expression over the parameters is false.
	When string `json:"when,omitempty"`
	// From is the node that sends the data (ping: that asks).
	From string `json:"from" jsonschema:"required"`
	// To is the node that receives the data and opens the connection (ping: that answers).
	To string `json:"to" jsonschema:"required"`
	// FromLink is the link whose address of the sender is used. Default: its first.
	FromLink string `json:"from_link,omitempty"`
	// ToLink is the link whose address of the receiver is used. Default: what routing gives.
	ToLink string `json:"to_link,omitempty"`
	// Family is 6 or 4. The routers of a topology speak BGP for IPv6: IPv4 gets no further than to a neighbour, unless commands of the nodes route it.
	Family int `json:"family,omitempty" jsonschema:"enum=4,enum=6,default=6"`
	// Protocol of the connection.
	Protocol string `json:"protocol,omitempty" jsonschema:"enum=tcp,enum=mptcp,enum=sctp,default=tcp"`
	// Congestion is the congestion control of the sender's sockets: one of the kernel's, plait's own (their names begin with plait), or one that a command of a node's run loads and names. Default the kernel's. SCTP has no choice; a command sets its own.
	Congestion string `json:"congestion,omitempty"`
	// StartS is when it starts, in seconds.
	StartS float64 `json:"start_s,omitempty" jsonschema:"minimum=0,maximum=86400"`
	// JitterMs delays the start by a random time up to this, drawn from the seed.
	JitterMs float64 `json:"jitter_ms,omitempty" jsonschema:"minimum=0,maximum=86400000"`
	// StopS ends it at that time; default when its work is done.
	StopS float64 `json:"stop_s,omitempty" jsonschema:"minimum=0,maximum=86400"`
	// TimeoutS makes the cell invalid if the work is not done that long after the start.
	TimeoutS float64 `json:"timeout_s,omitempty" jsonschema:"exclusiveMinimum=0,maximum=86400,default=3600"`
	// Bytes to download, or per burst. 0 downloads until stop_s.
	Bytes int64 `json:"bytes,omitempty" jsonschema:"minimum=0,maximum=1000000000000"`
	// MoreBytes are the sizes of the bursts after the first, before it begins again with bytes (bursts).
	MoreBytes []int64 `json:"more_bytes,omitempty" jsonschema:"minItems=1,minimum=1,maximum=1000000000000"`
	// Connections is how many are opened in parallel; the bytes are divided among them (download).
	Connections int `json:"connections,omitempty" jsonschema:"minimum=1,maximum=1000,default=1"`
	// Server is the HTTP server: go (built in) or nginx (download).
	Server string `json:"server,omitempty" jsonschema:"enum=go,enum=nginx,default=go"`
	// Client is the HTTP client: go (built in) or curl (download).
	Client string `json:"client,omitempty" jsonschema:"enum=go,enum=curl,default=go"`
	// RateMbps is the bit rate offered by the application (stream).
	RateMbps float64 `json:"rate_mbps,omitempty" jsonschema:"minimum=0,maximum=1000"`
	// GapMs is the time from one burst's start to the next (bursts), or between pings.
	GapMs float64 `json:"gap_ms,omitempty" jsonschema:"minimum=0,maximum=86400000"`
	// Count of bursts or pings.
	Count int `json:"count,omitempty" jsonschema:"minimum=0,maximum=1000000"`
	// Warmup is how many of these bursts, the first ones, are not counted.
	Warmup int `json:"warmup,omitempty" jsonschema:"minimum=0,maximum=1000000"`
	// OpenLoop starts every burst on time; otherwise one waits until the burst before has arrived (bursts).
	OpenLoop bool `json:"open_loop,omitempty"`
	// MinSubflows makes the cell invalid if an MPTCP connection has fewer subflows, the first included, one second after its start, or if the application has ended by then.
	// Default with protocol mptcp: 2. Write 1 where a connection without a join is meant, 0 where nothing is to be checked.
	MinSubflows int `json:"min_subflows,omitempty" jsonschema:"minimum=0,maximum=9"`
	// Split says how an association's messages are divided among the receiver's addresses: equal, static (by ratio), cwnd (by the congestion windows), or
	// measured (by rates, measured for 3 s before every 50 MB) (arms).
	Split string `json:"split,omitempty" jsonschema:"enum=equal,enum=static,enum=cwnd,enum=measured"`
	// Ratio of the bytes to the addresses, in the order the association has them (arms with split static).
	Ratio []float64 `json:"ratio,omitempty" jsonschema:"minItems=2"`
	// ServerCommand is the shell command run at the sender before the client's (command). $FROM, $TO: the addresses.
	ServerCommand string `json:"server_command,omitempty"`
	// ClientCommand is the shell command run at the receiver (command). Its exit status must be 0.
	ClientCommand string `json:"client_command,omitempty"`
	// Results are metrics read from the client command's output: metric name -> regular expression with one group, or a
	// path into its JSON output that starts with a dot, e.g. .end.sum_received.bits_per_second (command).
	Results map[string]string `json:"results,omitempty"`
	// Index is the application's place among all of the file's in the order of their names, from 0; those that the cell leaves out count. Set by Load.
	Index int `json:"index,omitempty" jsonschema:"-"`
}

// Event is one thing that happens at a time of the timeline: give exactly one of link, router and node.
type Event struct {
	// AtS is when, in seconds.
	AtS float64 `json:"at_s" jsonschema:"required,minimum=0,maximum=86400"`
	// JitterMs delays the event by a random time up to this, drawn from the seed.
	JitterMs float64 `json:"jitter_ms,omitempty" jsonschema:"minimum=0,maximum=86400000"`
	// When leaves the event out of cells for which this expression over the parameters is false.
	When string `json:"when,omitempty"`
	// Link is the link that changes: parameters (set, forward, backward), blackhole or carrier.
	Link string `json:"link,omitempty"`
	// Set replaces parameters of both directions.
	Set *Direction `json:"set,omitempty"`
	// Forward replaces parameters from the first end to the second.
	Forward *Direction `json:"forward,omitempty"`
	// Backward replaces parameters from the second end to the first.
	Backward *Direction `json:"backward,omitempty"`
	// Blackhole drops all packets in a direction without any signal; none ends it.
	Blackhole string `json:"blackhole,omitempty" jsonschema:"enum=forward,enum=backward,enum=both,enum=none"`
	// Carrier takes the link down or up as both ends see it.
	Carrier string `json:"carrier,omitempty" jsonschema:"enum=down,enum=up"`
	// Router is the router that announces or withdraws.
	Router string `json:"router,omitempty"`
	// Peer limits announce and withdraw to this neighbour.
	Peer string `json:"peer,omitempty"`
	// Announce is the link name or prefix announced from now on.
	Announce string `json:"announce,omitempty"`
	// Withdraw is the link name or prefix no longer announced.
	Withdraw string `json:"withdraw,omitempty"`
	// Node is where a command runs or an address changes.
	Node string `json:"node,omitempty"`
	// Run is the shell command run in the node. The events after it wait until it has ended; one that is half a second late makes the cell invalid.
	Run string `json:"run,omitempty"`
	// Address replaces the node's addresses on the link `on` by this one (with prefix length).
	Address string `json:"address,omitempty"`
	// On is the link whose address changes.
	On string `json:"on,omitempty"`
	// Index is the event's place in the file's timeline, from 0; those that the cell leaves out count. Set by Load.
	Index int `json:"index,omitempty" jsonschema:"-"`
}

// Measure says what is recorded.
type Measure struct {
	// EveryMs is the interval of all series.
	EveryMs int `json:"every_ms,omitempty" jsonschema:"minimum=1,maximum=60000,default=100"`
	// Sockets records cwnd, ssthresh, inflight, srtt and delivered bytes of every connection and subflow (TCP_INFO at the sender).
	Sockets bool `json:"sockets,omitempty"`
	// Links records bytes and queue length per link and direction over time; totals are always recorded.
	Links bool `json:"links,omitempty"`
	// Routes lists nodes whose route changes are recorded with their time.
	Routes []string `json:"routes,omitempty"`
	// Prefix is the link name or prefix whose routes are followed, such as the one that a link failure cuts off. Without it, what the timeline announces and withdraws.
	Prefix string `json:"prefix,omitempty"`
	// Probe records duplicate ACKs and retransmissions over time from the tcp tracepoints.
	Probe bool `json:"probe,omitempty"`
	// Pcap lists node/link captures to keep, e.g. client/access.
	Pcap []string `json:"pcap,omitempty"`
	// Jain compares per second those of these applications that are in the cell, if two are: Jain's index and the ratio of the last to the first. name/k is connection or subflow k of an application, name/k.. that one and all after it; both need sockets.
	Jain []string `json:"jain,omitempty"`
	// JainFromS leaves out the seconds that begin before this one.
	JainFromS float64 `json:"jain_from_s,omitempty" jsonschema:"minimum=0,maximum=86400"`
}

// Bound is a condition on the means over the seeds, or with each of them, at every point of the matrix.
type Bound struct {
	// Expect is one comparison (==, !=, <, <=, >, >=) between two expressions over <variant>.<app>.<metric>,
	// <link>.<parameter> and the parameters, of which at least one is a metric. The application's name may be left out when there is only one.
	Expect string `json:"expect" jsonschema:"required"`
	// When limits the bound to the points for which this expression over the parameters is true.
	When string `json:"when,omitempty"`
	// Because says where the number comes from.
	Because string `json:"because" jsonschema:"required"`
	// Over is point (default: at every point of the matrix by itself), seed (there with every seed by itself, not with their means: what must never happen) or all:
	// metrics are lists over all points, for mean(), max(), min(), all().
	Over string `json:"over,omitempty" jsonschema:"enum=point,enum=seed,enum=all,default=point"`
}

// Published is a number from a paper, shown beside ours.
type Published struct {
	// Metric is the expression of ours it is compared with.
	Metric string `json:"metric" jsonschema:"required"`
	// Value published, in the same unit.
	Value float64 `json:"value" jsonschema:"required"`
	// When limits it to the points for which this expression over the parameters is true.
	When string `json:"when,omitempty"`
	// Source is the paper and place.
	Source string `json:"source" jsonschema:"required"`
}

// Plot is one figure of the report.
type Plot struct {
	// Kind of figure: series (over time), cdf, bars, box or heat (a metric over two matrix parameters).
	Kind string `json:"kind" jsonschema:"required,enum=series,enum=cdf,enum=bars,enum=box,enum=heat"`
	// Title of the figure.
	Title string `json:"title,omitempty"`
	// Show lists the metrics or series drawn, as <app>.<name>; * stands for any name.
	Show []string `json:"show" jsonschema:"required,minItems=1"`
	// X is the parameter along the axis (bars, heat); Y the second one (heat).
	X string `json:"x,omitempty"`
	// Y is the parameter along the other axis (heat).
	Y string `json:"y,omitempty"`
	// When limits the figure to the points for which this expression over the parameters is true.
	When string `json:"when,omitempty"`
	// LogY draws a logarithmic axis.
	LogY bool `json:"log_y,omitempty"`
}

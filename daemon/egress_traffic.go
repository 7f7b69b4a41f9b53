package daemon

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
)

// busiest is how many flows and networks an answer lists: more than a screen has lines.
const busiest = 100

// EgressTraffic is what flows do now: plait top shows it.
type EgressTraffic struct {
	// Seconds are between the last two looks, which the flows' values are of.
	Seconds float64 `json:"seconds"`
	// Exits are those configured, in their order, and one without a name for what leaves by none of them, if anything does.
	Exits []NamedTraffic `json:"exits"`
	// Networks and Flows are the busiest first, at most 100 of each; Active is how many flows there are.
	Networks []NetworkStatus `json:"networks"`
	Flows    []FlowStatus    `json:"flows"`
	Active   int             `json:"active_flows"`
}

// NamedTraffic is an exit's.
type NamedTraffic struct {
	Exit string `json:"exit"`
	TrafficStatus
}

// NetworkStatus is what the flows to the clients of a network do that leave by an exit; of the last half minute or so, as TrafficStatus.
type NetworkStatus struct {
	Prefix      netip.Prefix `json:"prefix"` // as BGP has it; empty: no exit announces any
	Exit        string       `json:"exit"`
	Flows       int          `json:"flows"` // active at the last look
	GoodputMbps float64      `json:"goodput_mbps"`
	RTTMs       float64      `json:"rtt_ms"`
	LossPercent float64      `json:"loss_percent"`
}

// FlowStatus is what a flow did between the last two looks.
type FlowStatus struct {
	Local        netip.AddrPort `json:"local"`
	Client       netip.AddrPort `json:"client"`
	Exit         string         `json:"exit"`
	GoodputMbps  float64        `json:"goodput_mbps"`
	RTTMs        float64        `json:"rtt_ms"`
	SentSegments uint32         `json:"sent_segments"`
	Resent       uint32         `json:"resent_segments"`
}

// measured is the traffic of the exits, the one without a name for none of them.
func (x *exits) measured() map[string]TrafficStatus {
	out, all := map[string]TrafficStatus{}, 0.0
	traffic := x.traffic.Exits()
	for _, t := range traffic {
		all += t.GoodputBps
	}
	for name, t := range traffic {
		s := TrafficStatus{Flows: t.Flows, AckedBytes: t.AckedBytes, SentSegments: t.SentSegments, Resent: t.Resent,
			GoodputMbps: t.GoodputBps / 1e6, LossPercent: t.LossPercent, RTTMs: t.RTTMs}
		if all > 0 {
			s.SharePercent = 100 * t.GoodputBps / all
		}
		out[name] = s
	}
	return out
}

// active lists the flows of the last look, the busiest first.
func (x *exits) active() []FlowStatus {
	did, passed := x.traffic.Did()
	out := make([]FlowStatus, 0, len(did))
	for k, f := range did {
		e := endsOf(k)
		out = append(out, FlowStatus{Local: e.Local, Client: e.Remote, Exit: f.Exit, GoodputMbps: 8 * float64(f.AckedBytes) / passed.Seconds() / 1e6,
			RTTMs: float64(f.SRTTUs) / 1000, SentSegments: f.SentSegments, Resent: f.Resent})
	}
	slices.SortFunc(out, func(a, b FlowStatus) int {
		return cmp.Or(cmp.Compare(b.GoodputMbps, a.GoodputMbps), a.Client.Compare(b.Client), a.Local.Compare(b.Local))
	})
	return out
}

// now is what flows do at the moment.
func (x *exits) now() EgressTraffic {
	exits := x.measured()
	_, passed := x.traffic.Did()
	out := EgressTraffic{Seconds: passed.Seconds(), Networks: []NetworkStatus{}, Flows: x.active()}
	for _, e := range x.config.Exits {
		out.Exits = append(out.Exits, NamedTraffic{e.Name, exits[e.Name]})
	}
	if others := exits[""]; others.SentSegments > 0 {
		out.Exits = append(out.Exits, NamedTraffic{"", others})
	}
	for _, n := range x.networks.Busiest(busiest) {
		out.Networks = append(out.Networks, NetworkStatus{n.Prefix, n.Exit, n.Flows, n.GoodputBps / 1e6, n.RTTMs, n.LossPercent})
	}
	out.Active = len(out.Flows)
	out.Flows = out.Flows[:min(out.Active, busiest)]
	return out
}

// EgressTraffic asks what flows do now.
func (c *ControlClient) EgressTraffic() (t EgressTraffic, err error) {
	return t, c.call(http.MethodGet, "/egress/traffic", &t)
}

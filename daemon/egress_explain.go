package daemon

import (
	"cmp"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"plait.dev/plait/egress"
)

// WayStatus is an exit that reaches a client.
type WayStatus struct {
	Exit    string       `json:"exit"`
	Address *netip.Addr  `json:"address,omitempty"` // announced to the client, if the exit has one of its family
	Prefix  netip.Prefix `json:"prefix"`
	SID     netip.Addr   `json:"sid"`
	ASPath  []uint32     `json:"as_path"`
	Reason  string       `json:"reason"`
	// RTTMs is the round-trip time of the client's flows through it; 0: not known.
	RTTMs float64 `json:"rtt_ms"`
	// GoodputMbps is what the client acknowledged through it at the last look, about a second long, and LossPercent how many of the segments were sent again.
	GoodputMbps float64 `json:"goodput_mbps"`
	LossPercent float64 `json:"loss_percent"`
	// Failed: packets of the client's connections did not arrive through it lately, and it is not offered to the client now.
	Failed bool `json:"failed,omitempty"`
	// StandsBy is why it carries no data for the client while another exit can; empty: nothing is against it but the strategy.
	StandsBy string `json:"stands_by,omitempty"`
}

// ServiceStatus is what connections of a service to a client would use.
type ServiceStatus struct {
	Selector string          `json:"selector,omitempty"` // of the rule; empty: all others
	Strategy egress.Strategy `json:"strategy"`
	Carry    []string        `json:"carry"`  // the exits that carry data; BGP's best path by its exit's name, which is empty if that is none of the configured
	Reason   string          `json:"reason"` // why these
	// HoldoutPercent of its connections have the best path alone, to compare with.
	HoldoutPercent float64 `json:"holdout_percent"`
}

// Explanation is what plait egress explain shows.
type Explanation struct {
	Client   netip.Addr      `json:"client"`
	Ways     []WayStatus     `json:"ways"` // the best first
	Main     string          `json:"main"` // the exit of BGP's best path; empty: none of the configured
	Services []ServiceStatus `json:"services"`
	// Moved: so much leaves by other exits than the best path's (moved_percent) that connections which begin now have the best path alone.
	Moved bool `json:"moved,omitempty"`
}

// explain lists the exits that reach a client, and what each service would use.
func (x *exits) explain(client netip.Addr) Explanation {
	x.mu.Lock()
	defer x.mu.Unlock()
	client = client.Unmap()
	out := Explanation{Client: client, Ways: []WayStatus{}, Main: x.plan.MainExit(client), Services: []ServiceStatus{}, Moved: x.moved}
	ways := x.plan.Reachable(client)
	if len(ways) == 0 {
		return out
	}
	doubled := x.dropShared(client, out.Main, egress.Throughput.Carriers(x.candidates(client, ways, out.Main), ""))
	for _, w := range ways {
		one := WayStatus{Exit: w.Exit, Prefix: w.Prefix, SID: w.Route.SID, ASPath: append([]uint32{}, w.Route.ASPath...), Reason: w.Reason, Failed: !x.health.Fit(w.Exit, client), StandsBy: cmp.Or(x.spared(w.Exit, client), doubled[w.Exit]), RTTMs: x.rttMs(w.Exit, client)}
		one.GoodputMbps, one.LossPercent = x.traffic.Way(w.Exit, client)
		if a, ok := x.byExit[w.Exit][client.Is4()]; ok {
			one.Address = &a
		}
		out.Ways = append(out.Ways, one)
	}
	for _, r := range x.services.ofClient(client) {
		carry, why := x.carriers(client, ways, out.Main, r.Strategy)
		if len(carry) == 0 {
			carry, why = map[string]bool{out.Main: true}, "no exit brings packets to this client now, and the best path is left until one is tried again"
		}
		out.Services = append(out.Services, ServiceStatus{r.Selector, r.Strategy, slices.Sorted(maps.Keys(carry)), why, r.HoldoutPercent})
	}
	return out
}

// KnownStatus is what was measured of the clients in a prefix.
type KnownStatus struct {
	Prefix      netip.Prefix    `json:"prefix"`
	Strategy    egress.Strategy `json:"strategy"`
	ManagedMbps float64         `json:"managed_mbps"` // geometric mean of the rates of transfers, under the strategy
	HeldOutMbps float64         `json:"held_out_mbps"`
	Managed     float64         `json:"managed_samples"`
	HeldOut     float64         `json:"held_out_samples"`
	// Ratio of the times a byte takes, managed over held out: 0.8 is a fifth less; with its 95 % interval. 0: too little is known.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// OneUntil is until when the best path alone carries, because the strategy did no better.
	OneUntil time.Time `json:"one_until,omitzero"`
}

// known lists what was measured of prefixes.
func (x *exits) known() []KnownStatus {
	x.mu.Lock()
	known := x.worth.Known()
	x.mu.Unlock()
	slices.SortFunc(known, egress.ByPrefix)
	out := []KnownStatus{}
	for _, k := range known {
		one := KnownStatus{Prefix: k.Prefix, Strategy: k.Strategy, ManagedMbps: egress.MbitPerSecond(k.Managed), HeldOutMbps: egress.MbitPerSecond(k.HeldOut),
			Managed: k.Managed.Samples, HeldOut: k.HeldOut.Samples, OneUntil: byClock(k.OneUntil, time.Now())}
		one.Ratio, one.Low, one.High = k.Ratio()
		out = append(out, one)
	}
	return out
}

// EgressExplain asks which exits reach a client.
func (c *ControlClient) EgressExplain(client string) (e Explanation, err error) {
	return e, c.call(http.MethodGet, "/egress/explain?client="+url.QueryEscape(client), &e)
}

// EgressPrefixes asks what was measured of client prefixes.
func (c *ControlClient) EgressPrefixes() (k []KnownStatus, err error) {
	return k, c.call(http.MethodGet, "/egress/prefixes", &k)
}

package daemon

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/bgp"
	"plait.dev/plait/egress/mptcp"
)

// censusEvery is how often connections are counted for metrics at the most: that takes some microseconds for each.
const censusEvery = time.Minute

var (
	describeSettled   = prometheus.NewDesc("plait_egress_settled", "1 once the reflectors have told their routes, or have been silent for half a minute, and the kernel follows them.", nil, nil)
	describeLacking   = prometheus.NewDesc("plait_egress_lacking", "1 while the kernel lacks some of the exits' routes, rules or addresses: plait status says why.", nil, nil)
	describeSession   = prometheus.NewDesc("plait_egress_session_up", "1 while the BGP session with a route reflector is established.", []string{"reflector"}, nil)
	describeRoutes    = prometheus.NewDesc("plait_egress_routes", "Routes a reflector has told, with those kept of a lost session.", []string{"reflector"}, nil)
	describeRefused   = prometheus.NewDesc("plait_egress_refused_routes", "Routes that are not used: plait egress exits says why.", []string{"from"}, nil)
	describeManaged   = prometheus.NewDesc("plait_egress_connections", "MPTCP connections of clients that have the exits to choose from.", nil, nil)
	describeCensus    = prometheus.NewDesc("plait_egress_clients_connections", "Connections to servers that listen for MPTCP, as of the last minute: mptcp, fallback (MPTCP at first), or plain TCP.", []string{"kind"}, nil)
	describeStandsBy  = prometheus.NewDesc("plait_exit_standing_by", "1 while an exit carries as much as its cap allows (cap); clients for whom it loses too much (loss), brings what others carry late (late), or shares a bottleneck with the best path's exit (shared); 1 while nothing that is sent through it arrives, whoever the client is (out).", []string{"exit", "why"}, nil)
	describeSetAside  = prometheus.NewDesc("plait_egress_prefixes_set_aside", "Prefixes with an exit that plain TCP does not use either, since it is silent.", nil, nil)
	describeNewMoved  = prometheus.NewDesc("plait_egress_moved_exceeded", "1 while more than moved_percent leaves by other exits than the best path's: connections that begin have that alone.", nil, nil)
	stateDescriptions = []*prometheus.Desc{describeSettled, describeLacking, describeSession, describeRoutes, describeRefused, describeManaged, describeCensus, describeStandsBy, describeSetAside, describeNewMoved}
)

// exitsState is what the lever decides, for exitsStateCollector.
type exitsState struct {
	settled  bool
	lacking  bool
	sessions []SessionStatus
	refused  map[string]uint64 // routes, by whom they are from
	exits    []string
	managed  *int // connections; nil unless the mode is on
	census   *mptcp.Census
	full     map[string]bool               // exits at their caps
	out      map[string]bool               // exits that are out as a whole
	browned  map[egress.Why]map[string]int // clients for whom an exit stands by, and why
	shared   map[string]int                // clients for whom it shares a bottleneck with the best path's
	aside    map[netip.Prefix]bool
	moved    bool
}

// state is what metrics tell.
func (x *exits) state() exitsState {
	s := exitsState{settled: x.settled.Load(), lacking: x.behind() != "", census: x.counted(time.Now()), refused: map[string]uint64{}, full: map[string]bool{}, out: map[string]bool{}, aside: map[netip.Prefix]bool{}}
	var refused []RefusedStatus
	s.sessions, refused = x.sessions()
	if x.mptcp != nil {
		n := x.mptcp.Status().Connections
		s.managed = &n
	}
	s.browned, s.shared = x.brownouts.Clients(), x.shares.Clients()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range append(refused, x.refusals()...) {
		s.refused[r.From] += r.Routes
	}
	for _, e := range x.config.Exits {
		s.exits = append(s.exits, e.Name)
		s.full[e.Name], s.out[e.Name] = x.full[e.Name], x.outages.Out(e.Name)
	}
	for a := range x.aside {
		s.aside[a.prefix] = true
	}
	s.moved = x.moved
	return s
}

// counted is the census of the last minute, taken anew by the first who asks after that. Without an answer it is nil.
func (x *exits) counted(now time.Time) *mptcp.Census {
	x.counting.Lock()
	defer x.counting.Unlock()
	if now.Sub(x.countedAt) >= censusEvery {
		x.census, x.countedAt = nil, now
		if census, err := mptcp.TakeCensus(); err == nil {
			x.census = &census
		}
	}
	return x.census
}

// exitsStateCollector publishes what an operator wants to be woken for: sessions that are down, routes refused, exits that are not used.
type exitsStateCollector struct{ state func() exitsState }

// Describe implements prometheus.Collector.
func (c exitsStateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range stateDescriptions {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c exitsStateCollector) Collect(out chan<- prometheus.Metric) {
	s := c.state()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	is := map[bool]float64{true: 1}
	gauge(describeSettled, is[s.settled])
	gauge(describeLacking, is[s.lacking])
	for _, session := range s.sessions {
		routes := 0
		for _, n := range session.Routes {
			routes += n
		}
		gauge(describeSession, is[session.State == bgp.Established.String()], session.Reflector.String())
		gauge(describeRoutes, float64(routes), session.Reflector.String())
	}
	for from, routes := range s.refused {
		gauge(describeRefused, float64(routes), from)
	}
	for _, exit := range s.exits {
		gauge(describeStandsBy, is[s.full[exit]], exit, "cap")
		gauge(describeStandsBy, is[s.out[exit]], exit, "out")
		for why, clients := range s.browned {
			gauge(describeStandsBy, float64(clients[exit]), exit, string(why))
		}
		gauge(describeStandsBy, float64(s.shared[exit]), exit, "shared")
	}
	if s.managed != nil {
		gauge(describeManaged, float64(*s.managed))
	}
	if census := s.census; census != nil {
		gauge(describeCensus, float64(census.MPTCP), "mptcp")
		gauge(describeCensus, float64(census.Fallback), "fallback")
		gauge(describeCensus, float64(census.Plain), "plain")
	}
	gauge(describeSetAside, float64(len(s.aside)))
	gauge(describeNewMoved, is[s.moved])
}

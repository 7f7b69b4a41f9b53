package daemon

import "github.com/prometheus/client_golang/prometheus"

var (
	describeSettled   = prometheus.NewDesc("plait_egress_settled", "1 once the reflectors have told their routes and the kernel follows them.", nil, nil)
	describeSession   = prometheus.NewDesc("plait_egress_session_up", "1 while the BGP session with a route reflector is established.", []string{"reflector"}, nil)
	describeRoutes    = prometheus.NewDesc("plait_exit_routes", "Routes that lead through an exit.", []string{"exit"}, nil)
	describeRefused   = prometheus.NewDesc("plait_egress_refused_routes", "Routes that are not used: plait egress exits says why.", []string{"from"}, nil)
	describeManaged   = prometheus.NewDesc("plait_egress_connections", "MPTCP connections of clients that have the exits to choose from.", nil, nil)
	describeCensus    = prometheus.NewDesc("plait_egress_clients_connections", "Connections to servers that listen for MPTCP: mptcp, fallback (MPTCP at first), or plain TCP.", []string{"kind"}, nil)
	describeStandsBy  = prometheus.NewDesc("plait_exit_standing_by", "1 while an exit carries as much as its cap allows (cap); clients for whom it loses too much (loss).", []string{"exit", "why"}, nil)
	describeSetAside  = prometheus.NewDesc("plait_egress_paths_set_aside", "Prefixes whose best path is not used by plain TCP either, since its exit is silent.", nil, nil)
	describeNewMoved  = prometheus.NewDesc("plait_egress_moved_exceeded", "1 while more than moved_percent leaves by other exits than the best path's: connections that begin have that alone.", nil, nil)
	stateDescriptions = []*prometheus.Desc{describeSettled, describeSession, describeRoutes, describeRefused, describeManaged, describeCensus, describeStandsBy, describeSetAside, describeNewMoved}
)

// exitsState is what the lever decides, for exitsStateCollector.
type exitsState struct {
	EgressStatus
	full    map[string]bool // exits at their caps
	browned map[string]int  // clients for whom an exit loses too much
	aside   int
	moved   bool
}

func (x *exits) state() exitsState {
	s := exitsState{EgressStatus: x.status(), full: map[string]bool{}}
	x.mu.Lock()
	defer x.mu.Unlock()
	for exit := range x.full {
		s.full[exit] = true
	}
	s.browned, s.aside, s.moved = x.brownouts.Clients(), len(x.aside), x.moved
	return s
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
	gauge(describeSettled, is[s.Settled])
	for _, session := range s.Sessions {
		gauge(describeSession, is[session.State == "established"], session.Reflector.String())
	}
	refused := map[string]float64{}
	for _, r := range s.Refused {
		refused[r.From] += float64(r.Routes)
	}
	for from, routes := range refused {
		gauge(describeRefused, routes, from)
	}
	for _, e := range s.Exits {
		gauge(describeRoutes, float64(e.Routes), e.Name)
		gauge(describeStandsBy, is[s.full[e.Name]], e.Name, "cap")
		gauge(describeStandsBy, float64(s.browned[e.Name]), e.Name, "loss")
	}
	if m := s.MPTCP; m != nil {
		gauge(describeManaged, float64(m.Connections))
	}
	if c := s.Census; c != nil {
		gauge(describeCensus, float64(c.MPTCP), "mptcp")
		gauge(describeCensus, float64(c.Fallback), "fallback")
		gauge(describeCensus, float64(c.Plain), "plain")
	}
	gauge(describeSetAside, float64(s.aside))
	gauge(describeNewMoved, is[s.moved])
}

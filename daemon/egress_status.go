package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/egress/bgp"
	"plait.dev/plait/egress/mptcp"
)

// errNoEgress is the answer of a plait without the lever.
var errNoEgress = errors.New("this plait chooses no exits: its configuration has no section egress, or its mode is off")

// maxRoutes is how many routes one answer holds.
const maxRoutes = 1000

// EgressStatus is how the lever is: `plait egress exits` and `sessions` show it. No list of an answer is nil, which would be null in JSON.
type EgressStatus struct {
	Mode Mode `json:"mode"`
	// Settled: the reflectors have told their routes, and from then on the kernel follows them.
	Settled bool `json:"settled"`
	// Lacking is what the kernel lacks of the plan all the same, and why; empty: nothing.
	Lacking  string          `json:"lacking,omitempty"`
	Sessions []SessionStatus `json:"sessions"`
	Exits    []ExitStatus    `json:"exits"`
	// Others is what leaves by none of them, if anything does and the kernel can watch flows.
	Others *TrafficStatus `json:"others,omitempty"`
	// Main and Standby are how many routes there are in the main table, and how many stand behind them.
	Main    int             `json:"main_routes"`
	Standby int             `json:"standby_routes"`
	Refused []RefusedStatus `json:"refused"`
	// MPTCP is there in mode on.
	MPTCP *MPTCPStatus `json:"mptcp,omitempty"`
	// Census is of all connections of servers that listen for MPTCP; left out if the kernel does not tell.
	Census *mptcp.Census `json:"census,omitempty"`
}

// MPTCPStatus counts the connections of clients.
type MPTCPStatus struct {
	Connections int `json:"connections"` // that clients opened, without plain TCP
	Subflows    int `json:"subflows"`
	Announced   int `json:"announced_addresses"` // over all connections
}

// EgressSummary is the lever in a line: `plait status` shows it.
type EgressSummary struct {
	Mode  Mode `json:"mode"`
	Exits int  `json:"exits"`
	// Sessions are those with route reflectors; Up is how many of them there are at the moment.
	Sessions int `json:"sessions"`
	Up       int `json:"sessions_up"`
	// Routes are what the reflectors tell of; two that tell of the same count twice.
	Routes int `json:"routes"`
}

// SessionStatus is the session with a reflector.
type SessionStatus struct {
	Reflector netip.Addr     `json:"reflector"`
	State     string         `json:"state"`
	Since     time.Time      `json:"since"`
	Routes    map[string]int `json:"routes"` // by family; those kept of a lost session too
	// Kept are those of Routes that a session which was lost has told, and nobody since.
	Kept      map[string]int `json:"kept,omitempty"`
	Agreed    []string       `json:"agreed"`
	LastError string         `json:"last_error,omitempty"`
	ErrorAt   time.Time      `json:"error_at,omitzero"`
}

// ExitStatus is an exit as the plan has it.
type ExitStatus struct {
	Name        string         `json:"name"`
	RouteTarget string         `json:"route_target"`
	Table       uint32         `json:"table"`
	Addresses   []netip.Addr   `json:"addresses"`
	Routes      int            `json:"routes"`
	SIDs        map[string]int `json:"sids"` // how many routes lead to each
	// Out is there while nothing that is sent through it arrives.
	Out *OutStatus `json:"out,omitempty"`
	// Traffic is there if the kernel can watch flows.
	Traffic *TrafficStatus `json:"traffic,omitempty"`
}

// OutStatus is since when an exit is out as a whole, and until when it is held: after that, a sign of life brings it back.
type OutStatus struct {
	Since     time.Time `json:"since"`
	HeldUntil time.Time `json:"held_until"`
}

// TrafficStatus is what was measured of the TCP flows through an exit, from its own addresses and from this host's where it is the best path's.
type TrafficStatus struct {
	Flows        int     `json:"flows"` // active in the last second
	AckedBytes   uint64  `json:"acked_bytes"`
	SentSegments uint64  `json:"sent_segments"`
	Resent       uint64  `json:"resent_segments"`
	GoodputMbps  float64 `json:"goodput_mbps"`
	LossPercent  float64 `json:"loss_percent"` // segments sent again
	RTTMs        float64 `json:"rtt_ms"`       // 0: nothing was acknowledged lately
	SharePercent float64 `json:"share_percent"`
}

// RefusedStatus is why some routes are not used.
type RefusedStatus struct {
	From   string `json:"from"` // an exit, "default table" or a reflector
	Reason string `json:"reason"`
	Routes uint64 `json:"routes"` // that are told now
	Last   string `json:"last"`
}

// RouteStatus is one entry of the plan.
type RouteStatus struct {
	Exit    string       `json:"exit"`  // empty: the main table
	Table   uint32       `json:"table"` // as the kernel counts them
	Prefix  netip.Prefix `json:"prefix"`
	SID     *netip.Addr  `json:"sid,omitempty"`
	NextHop *netip.Addr  `json:"next_hop,omitempty"`
	Standby bool         `json:"standby,omitempty"`
}

func (x *exits) name(table uint32) string {
	for _, e := range x.config.Exits {
		if e.Table == table {
			return e.Name
		}
	}
	return ""
}

// byFamily names the families that have some.
func byFamily(counts []int) map[string]int {
	out := map[string]int{}
	for family, n := range counts {
		if n > 0 {
			out[bgp.Family(family).String()] = n
		}
	}
	return out
}

func (x *exits) sessions() (out []SessionStatus, refused []RefusedStatus) {
	out, refused = []SessionStatus{}, []RefusedStatus{}
	now := time.Now()
	for _, s := range x.speaker.Sessions() {
		one := SessionStatus{Reflector: s.Reflector, State: s.State.String(), Since: byClock(s.Since, now), Agreed: append([]string{}, s.Agreed...), LastError: s.LastError, ErrorAt: byClock(s.ErrorAt, now), Routes: byFamily(s.Prefixes[:]), Kept: byFamily(s.Stale[:])}
		out = append(out, one)
		for _, r := range s.Refused {
			if r.Routes > 0 {
				refused = append(refused, RefusedStatus{"reflector " + s.Reflector.String(), r.Reason, r.Routes, r.Last})
			}
		}
	}
	return out, refused
}

// summary waits for nothing: the plan may be taken for as long as the kernel takes to be compared with it. Without the lever there is none.
func (x *exits) summary() *EgressSummary {
	if x == nil {
		return nil
	}
	out := &EgressSummary{Mode: x.config.Mode, Exits: len(x.config.Exits)}
	for _, s := range x.speaker.Sessions() {
		out.Sessions++
		if s.State == bgp.Established {
			out.Up++
		}
		for _, n := range s.Prefixes {
			out.Routes += n
		}
	}
	return out
}

// refusals are the routes that the plan does not use. The caller has x.mu.
func (x *exits) refusals() (out []RefusedStatus) {
	for _, r := range x.plan.Refusals() {
		from := r.Exit
		if from == "" {
			from = "default table"
		}
		last := r.Prefix.String()
		if r.SID.IsValid() { // a route of the default table has none
			last += " " + r.SID.String()
		}
		out = append(out, RefusedStatus{from, r.Reason.String(), uint64(r.Routes), last})
	}
	return out
}

// status counts what the plan has.
func (x *exits) status() EgressStatus {
	out := EgressStatus{Mode: x.config.Mode, Exits: []ExitStatus{}}
	out.Sessions, out.Refused = x.sessions()
	if x.mptcp != nil {
		s := x.mptcp.Status()
		out.MPTCP = &MPTCPStatus{Connections: s.Connections, Subflows: s.Subflows, Announced: s.Announced}
	}
	if census, err := mptcp.TakeCensus(); err == nil {
		out.Census = &census
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	out.Settled, out.Lacking = x.settled.Load(), x.behind()
	out.Refused = append(out.Refused, x.refusals()...)
	for _, e := range x.config.Exits {
		one := ExitStatus{Name: e.Name, RouteTarget: e.RouteTarget, Table: e.Table, Addresses: append([]netip.Addr{}, e.Addresses...), SIDs: map[string]int{}}
		if since, until := x.outages.Since(e.Name); !since.IsZero() {
			now := time.Now()
			one.Out = &OutStatus{byClock(since, now), byClock(until, now)}
		}
		out.Exits = append(out.Exits, one)
	}
	if x.flows != nil {
		traffic := x.measured()
		for i := range out.Exits {
			t := traffic[out.Exits[i].Name]
			out.Exits[i].Traffic = &t
		}
		if others := traffic[""]; others.SentSegments > 0 {
			out.Others = &others
		}
	}
	var sids []map[netip.Addr]int
	sids, out.Main, out.Standby = x.plan.Counts()
	for i := range out.Exits {
		for sid, routes := range sids[i] {
			out.Exits[i].SIDs[sid.String()] = routes
			out.Exits[i].Routes += routes
		}
	}
	return out
}

// entries lists the plan's routes whose prefix overlaps with one; an invalid one stands for all. It takes its time, as samples does.
func (x *exits) entries(within netip.Prefix) (out []RouteStatus, more bool) {
	x.writing.Lock()
	defer x.writing.Unlock()
	out = []RouteStatus{}
	for e := range x.plan.Entries() {
		if within.IsValid() && !within.Overlaps(e.Prefix) {
			continue
		}
		if len(out) == maxRoutes {
			return out, true
		}
		r := RouteStatus{Exit: x.name(e.Table), Table: cmp.Or(e.Table, unix.RT_TABLE_MAIN), Prefix: e.Prefix, Standby: e.Standby}
		if e.SID.IsValid() {
			r.SID = &e.SID
		} else {
			r.NextHop = &e.NextHop
		}
		out = append(out, r)
	}
	return out, false
}

// RoutesAnswer is what plait egress routes shows.
type RoutesAnswer struct {
	Routes []RouteStatus `json:"routes"`
	More   bool          `json:"more"` // than an answer holds
}

// questions adds the lever's questions to the control socket's.
func (x *exits) questions(m *http.ServeMux) {
	ask := func(path string, f func(*http.Request) (any, error)) {
		m.HandleFunc("GET /egress"+path, func(w http.ResponseWriter, r *http.Request) {
			if x == nil {
				answer(w, nil, errNoEgress)
				return
			}
			v, err := f(r)
			answer(w, v, err)
		})
	}
	ask("", func(*http.Request) (any, error) { return x.status(), nil })
	ask("/check", func(*http.Request) (any, error) { return x.checkInput(), nil })
	ask("/routes", func(r *http.Request) (any, error) {
		var within netip.Prefix
		if text := r.URL.Query().Get("prefix"); text != "" {
			var err error
			if within, err = parsePrefix(text); err != nil {
				return nil, err
			}
		}
		var a RoutesAnswer
		a.Routes, a.More = x.entries(within)
		return a, nil
	})
	ask("/explain", func(r *http.Request) (any, error) {
		client, err := netip.ParseAddr(r.URL.Query().Get("client"))
		if err != nil {
			return nil, fmt.Errorf("client %s: expected an IP address", r.URL.Query().Get("client"))
		}
		return x.explain(client), nil
	})
	ask("/prefixes", func(*http.Request) (any, error) { return x.known(), nil })
	ask("/traffic", func(*http.Request) (any, error) {
		if x.flows == nil {
			return nil, errUnwatched
		}
		return x.now(), nil
	})
	m.HandleFunc("GET /egress/flows", x.record)
	ask("/log", func(*http.Request) (any, error) { return x.lines(), nil })
}

// parsePrefix takes an address for the prefix of itself.
func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap() // as ss shows IPv4 clients of servers that listen on IPv6
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("prefix %s: expected an IP prefix, like 2001:db8::/32, or an address", text)
	}
	return p.Masked(), nil
}

// Egress asks how the lever egress is.
func (c *ControlClient) Egress() (s EgressStatus, err error) {
	return s, c.call(http.MethodGet, "/egress", &s)
}

// EgressRoutes asks for the routes that overlap with a prefix; empty: for all.
func (c *ControlClient) EgressRoutes(prefix string) (a RoutesAnswer, err error) {
	return a, c.call(http.MethodGet, "/egress/routes?prefix="+url.QueryEscape(prefix), &a)
}

// EgressLog asks for the latest decisions, and changes of the kernel's state.
func (c *ControlClient) EgressLog() (j []JournalEntry, err error) {
	return j, c.call(http.MethodGet, "/egress/log", &j)
}

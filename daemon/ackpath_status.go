package daemon

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// AckpathStatus is how the lever ackpath is: `plait ackpath status` shows it.
type AckpathStatus struct {
	// Lacks is why this kernel can do nothing of it.
	Lacks string `json:"lacks,omitempty"`
	// Mode and Ratio are those of the configuration, of this host as receiver; Port is that of senders.
	Mode  Mode    `json:"mode"`
	Ratio float64 `json:"ratio"`
	Port  uint16  `json:"port"`
	// Flows are the subflows of connections with more than one link that receive something, Ways what hellos tell.
	Flows []AckFlowStatus `json:"flows"`
	Ways  []AckWayStatus  `json:"ways"`
	// Trouble is what keeps the receiver from finding its flows, or from copying for them.
	Trouble string `json:"trouble,omitempty"`
	// Copies is how many ACKs were copied since the receiver is on.
	Copies uint64 `json:"copies"`
	// Answers is whether this host takes copies as a sender, Silent why not, and Fair whether its congestion control corrects for them.
	Answers bool   `json:"answers"`
	Silent  string `json:"silent,omitempty"`
	Fair    bool   `json:"fair"`
	// Taken are the subflows that copies are taken for.
	Taken []TakenStatus `json:"taken"`
	// TakenCopies and LateCopies are how many came since this host answers, Ignored how many datagrams were no hellos, or too many.
	TakenCopies uint64 `json:"taken_copies"`
	LateCopies  uint64 `json:"late_copies"`
	Ignored     uint64 `json:"ignored_hellos"`
}

// AckFlowStatus is a subflow of this host as receiver.
type AckFlowStatus struct {
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	Token  uint32         `json:"token"` // the sender's
	ID     uint8          `json:"id"`
	Link   string         `json:"link"`           // empty: it is not found, Because says why
	Over   string         `json:"over,omitempty"` // the quickest other link
	// Copied since; zero: it is not.
	Copied time.Time `json:"copied_since,omitzero"`
	Copies uint64    `json:"copies"`
	// Arrived, Late and LeadMs are what the sender tells.
	Arrived uint32  `json:"arrived"`
	Late    uint32  `json:"late"`
	LeadMs  float64 `json:"lead_ms"`
	Because string  `json:"because"`
}

// AckWayStatus is a way to a sender.
type AckWayStatus struct {
	Link   string     `json:"link"`
	Source netip.Addr `json:"source"`
	Server netip.Addr `json:"server"`
	// RTTMs is the shortest round trip of the last hellos; 0: none is answered.
	RTTMs float64 `json:"rtt_ms"`
	Fair  bool    `json:"fair"`
	// Used by a connection last; nothing is asked since.
	Used time.Time `json:"used"`
	// Silent: until then nothing is asked, because nothing was answered.
	Silent time.Time `json:"silent_until,omitzero"`
	Lacks  string    `json:"lacks,omitempty"` // why hellos cannot be sent
}

// TakenStatus is a subflow of this host as sender.
type TakenStatus struct {
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	From   netip.Addr     `json:"from"` // the hellos
	Copies uint64         `json:"copies"`
	// Used are the copies that the socket was given; the others were timed: its window would have gained nothing from them.
	Used   uint64  `json:"used"`
	Late   uint64  `json:"late"`
	LeadMs float64 `json:"lead_ms"`
}

// AckpathSummary is the lever in a line: `plait status` shows it.
type AckpathSummary struct {
	Mode    Mode   `json:"mode"`
	Copied  int    `json:"copied_flows"`
	Answers bool   `json:"answers"`
	Taken   int    `json:"taken_flows"`
	Lacks   string `json:"lacks,omitempty"`
}

func (r *ackReceiver) status(out *AckpathStatus, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out.Copies = r.ended
	out.Trouble, _, _ = strings.Cut(r.trouble, "\n")
	for key, f := range r.flows {
		one := AckFlowStatus{Local: f.ends.Local, Remote: f.ends.Remote, Token: f.name.Token, ID: f.name.ID,
			Copied: f.since, Copies: f.earlier + f.sent, Arrived: f.before.Copies + f.told.Copies, Late: f.before.Late + f.told.Late, Because: f.decision.Because}
		if w := r.ways[f.slow]; w != nil {
			one.Link = w.link.name
		}
		if w := r.ways[f.quick]; w != nil {
			one.Over = w.link.name
		}
		if f.copied != nil {
			one.Copies = f.earlier + r.kernel.copies(key)
			one.LeadMs = float64(f.told.LeadUs) / 1000
		}
		out.Copies += one.Copies
		out.Flows = append(out.Flows, one)
	}
	for k, w := range r.ways {
		out.Ways = append(out.Ways, AckWayStatus{Link: w.link.name, Source: k.source, Server: k.server, RTTMs: float64(w.RTT()) / 1e6, Fair: w.Fair(), Used: w.used, Silent: w.Silent(now), Lacks: w.lacks})
	}
	slices.SortFunc(out.Flows, func(a, b AckFlowStatus) int { return cmp.Or(cmp.Compare(a.Token, b.Token), a.Local.Compare(b.Local)) })
	slices.SortFunc(out.Ways, func(a, b AckWayStatus) int {
		return cmp.Or(a.Server.Compare(b.Server), cmp.Compare(a.Link, b.Link), a.Source.Compare(b.Source))
	})
}

func (s *ackSender) status(out *AckpathStatus, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Answers, out.Ignored = true, s.ignored
	out.TakenCopies, out.LateCopies = s.ended.Copies, s.ended.Late
	for _, t := range s.taken {
		l, _ := s.kernel.lead(t.key) // what cannot be read counts as nothing
		out.Taken = append(out.Taken, TakenStatus{t.ends.Local, t.ends.Remote, t.from, l.Copies, l.Used, l.Late, float64(t.lead(now, l)) / 1000})
		out.TakenCopies += l.Copies
		out.LateCopies += l.Late
	}
	slices.SortFunc(out.Taken, func(a, b TakenStatus) int { return cmp.Or(a.Remote.Compare(b.Remote), a.Local.Compare(b.Local)) })
}

// status tells all.
func (a *acks) status() AckpathStatus {
	a.changing.Lock()
	defer a.changing.Unlock()
	out := AckpathStatus{Lacks: a.lacks, Mode: a.config.Ackpath.Mode, Ratio: a.config.Ackpath.Ratio, Port: a.port, Fair: a.fair, Silent: a.silent,
		Flows: []AckFlowStatus{}, Ways: []AckWayStatus{}, Taken: []TakenStatus{}}
	if a.receiver != nil {
		a.receiver.status(&out, time.Now())
	}
	if a.sender != nil {
		a.sender.status(&out, time.Now())
	}
	return out
}

// summary is there where the lever does something, or should.
func (a *acks) summary() *AckpathSummary {
	if a == nil {
		return nil
	}
	s := a.status()
	out := &AckpathSummary{Mode: s.Mode, Answers: s.Answers, Taken: len(s.Taken)}
	for _, f := range s.Flows {
		if !f.Copied.IsZero() {
			out.Copied++
		}
	}
	if s.Mode != Off {
		out.Lacks = s.Lacks
	} else if out.Taken == 0 {
		return nil
	}
	return out
}

// explain leaves what is about one connection, or one host at the other end. Ways are those to hosts in it.
func (s AckpathStatus) explain(of string) (AckpathStatus, error) {
	var matches func(local, remote netip.AddrPort) bool
	if host, err := netip.ParseAddr(of); err == nil {
		matches = func(_, remote netip.AddrPort) bool { return remote.Addr() == host.Unmap() }
	} else if name, err := parseSocket(of); err == nil && name.cookie == 0 {
		matches = func(local, remote netip.AddrPort) bool {
			return name.matches(SocketStatus{Local: local, Remote: remote})
		}
	} else {
		return s, fmt.Errorf("%s: expected the address of the host at the other end, an end like 192.0.2.1:443 or both ends like 192.0.2.1:443-198.51.100.7:50000", of)
	}
	// All subflows of a connection belong together; of those whose token is not known nobody can tell.
	tokens, servers := map[uint32]bool{}, map[netip.Addr]bool{}
	for _, f := range s.Flows {
		tokens[f.Token] = tokens[f.Token] || f.Token != 0 && matches(f.Local, f.Remote)
	}
	s.Flows = slices.DeleteFunc(s.Flows, func(f AckFlowStatus) bool { return !tokens[f.Token] && !matches(f.Local, f.Remote) })
	for _, f := range s.Flows {
		servers[f.Remote.Addr()] = true
	}
	s.Ways = slices.DeleteFunc(s.Ways, func(w AckWayStatus) bool { return !servers[w.Server] })
	s.Taken = slices.DeleteFunc(s.Taken, func(t TakenStatus) bool { return !matches(t.Local, t.Remote) })
	if len(s.Flows)+len(s.Taken) == 0 {
		return s, &missing{fmt.Sprintf("%s: no MPTCP connection that receives something over more than one link, and none that copies of ACKs are taken for", of)}
	}
	return s, nil
}

// questions adds the lever's questions to the control socket's.
func (a *acks) questions(m *http.ServeMux) {
	m.HandleFunc("GET /ackpath", func(w http.ResponseWriter, r *http.Request) {
		s, err := a.status(), error(nil)
		if of := r.URL.Query().Get("of"); of != "" {
			s, err = s.explain(of)
		}
		answer(w, s, err)
	})
}

// Ackpath asks how the lever ackpath is; of names a host or connection, empty: all.
func (c *ControlClient) Ackpath(of string) (s AckpathStatus, err error) {
	return s, c.call(http.MethodGet, "/ackpath?of="+url.QueryEscape(of), &s)
}

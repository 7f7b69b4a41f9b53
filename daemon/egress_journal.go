package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"plait.dev/plait/egress/mptcp"
)

// journalLength is how many decisions are remembered for plait egress log, how many changes of the kernel's routes, and how many lines about MPTCP connections.
const journalLength = 10_000

// JournalEntry is a decision, or a change of the kernel's state, done or tried.
type JournalEntry struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// pages are the latest lines of one kind.
type pages struct {
	entries []JournalEntry
	oldest  int // where the next one goes, once all places are taken
	ration
}

// add keeps a line, and returns what to write to the daemon's log.
func (p *pages) add(e JournalEntry) string {
	if len(p.entries) < journalLength {
		p.entries = append(p.entries, e)
	} else {
		p.entries[p.oldest] = e
		p.oldest = (p.oldest + 1) % journalLength
	}
	return p.take(e.At, e.Text)
}

// journal keeps decisions apart from changes of routes, and of connections: of these there can be so many that no decision would be left in the journal, or in the log.
type journal struct{ decisions, routes, connections pages }

func newJournal() journal {
	rest := fmt.Sprintf("plait egress log has the latest %d", journalLength)
	return journal{pages{ration: newRation(rest)}, pages{ration: newRation(rest)}, pages{ration: newRation(rest)}}
}

// lines are everything that is remembered, the latest last.
func (x *exits) lines() []JournalEntry {
	x.mu.Lock()
	out := slices.Concat(x.journal.decisions.entries, x.journal.routes.entries, x.journal.connections.entries)
	x.mu.Unlock() // to put them in order takes ten times as long
	if out == nil {
		return []JournalEntry{}
	}
	slices.SortStableFunc(out, func(a, b JournalEntry) int { return a.At.Compare(b.At) })
	return out
}

// commands keeps what was done to MPTCP connections in the last second or so, a line for all that is alike: a busy server has some for each connection.
func (x *exits) commands(done []mptcp.Done) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range done {
		x.write(&x.journal.connections, x.commanded(d))
	}
}

// commanded is what was done, in words.
func (x *exits) commanded(d mptcp.Done) string {
	addr := d.Addr.String()
	if exit := x.ownExit(d.Addr); exit != "" {
		addr += ", of exit " + exit + ","
	}
	what := map[mptcp.Command]string{
		mptcp.Announced:   "announce %s to connections of %s",
		mptcp.Removed:     "withdraw %s from connections of %s",
		mptcp.Destroyed:   "close subflows on %s to %s",
		mptcp.SetBackup:   "make subflows on %s to %s a backup",
		mptcp.UnsetBackup: "make subflows on %s to %s carry",
	}[d.Command]
	clients := make([]string, 0, len(d.Clients)+1)
	for _, c := range d.Clients {
		clients = append(clients, c.String())
	}
	if d.More {
		clients = append(clients, "others")
	}
	return fmt.Sprintf(what, addr, strings.Join(clients, ", ")) + fmt.Sprintf(" (%d): %s", d.Times, d.Why)
}

// why says why a connection's use of an address of this host is what it is.
func (x *exits) why(p mptcp.Peer, addr netip.Addr) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	exit, main := x.exitOf(addr, p.Client), x.exitOf(p.Own.Addr(), p.Client)
	ways := x.plan.Reachable(p.Client)
	switch {
	case !x.health.Fit(exit, p.Client):
		return "packets do not arrive through it"
	case len(ways) == 0 || !reaches(exit, ways):
		return "no route through it reaches the client"
	case exit == main && addr != p.Own.Addr():
		return "what the connection began on leaves through it already"
	}
	if why := x.spared(exit, p.Client); why != "" {
		return why
	}
	_, why := x.carriers(p.Client, ways, main, x.services.of(p).Strategy)
	return why
}

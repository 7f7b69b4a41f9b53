package daemon

import (
	"fmt"
	"slices"
	"time"

	"plait.dev/plait/egress/mptcp"
)

const (
	// journalLength is how many decisions are remembered for plait egress log, and how many changes of the kernel's routes.
	journalLength = 10_000
	// commandsEvery is how often commands to MPTCP connections are added up in a line: a busy server has some for each connection.
	commandsEvery = time.Minute
)

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

// journal keeps decisions apart from changes of routes: of those a reflector can tell so many that no decision would be left in the journal, or in the log.
type journal struct{ decisions, routes pages }

func newJournal() journal {
	rest := fmt.Sprintf("plait egress log has the latest %d", journalLength)
	return journal{pages{ration: newRation(rest)}, pages{ration: newRation(rest)}}
}

// all is everything that is remembered, the latest last.
func (j *journal) all() []JournalEntry {
	out := slices.Concat(j.decisions.entries, j.routes.entries)
	if out == nil {
		return []JournalEntry{}
	}
	slices.SortStableFunc(out, func(a, b JournalEntry) int { return a.At.Compare(b.At) })
	return out
}

// commanded is what was done to connections since, in words; empty if that is nothing.
func commanded(before, now mptcp.Counts) string {
	announced, removed := now.Announces-before.Announces, now.Removes-before.Removes
	closed, roles := now.Destroys-before.Destroys, now.Priorities-before.Priorities
	joined := now.Joins - before.Joins
	if announced+removed+closed+roles+joined == 0 {
		return ""
	}
	return fmt.Sprintf("MPTCP connections since %v ago: %d addresses of exits announced, %d withdrawn, %d subflows closed, %d made a backup or no longer; clients opened %d",
		commandsEvery, announced, removed, closed, roles, joined)
}

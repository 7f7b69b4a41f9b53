package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/egress/mptcp"
)

// However many routes come and go, decisions stay, in the order of things, and the daemon's log has them.
func TestJournal(t *testing.T) {
	j, at := newJournal(), time.Unix(0, 0)
	if j.all() == nil {
		t.Error("an empty journal is null in JSON")
	}
	j.decisions.add(JournalEntry{at.Add(2*journalLength*time.Millisecond - 1), "decision"})
	for i := range 3 * journalLength {
		j.routes.add(JournalEntry{at.Add(time.Duration(i) * time.Millisecond), fmt.Sprint(i)})
	}
	all := j.all()
	if len(all) != journalLength+1 || all[0].Text != "decision" || all[1].Text != fmt.Sprint(2*journalLength) || all[journalLength].Text != fmt.Sprint(3*journalLength-1) {
		t.Errorf("%d entries, %q, %q to %q", len(all), all[0].Text, all[1].Text, all[len(all)-1].Text)
	}
	if got := j.decisions.add(JournalEntry{at, "another"}); got != "another" {
		t.Errorf("the daemon's log gets %q of a decision amid changes of routes", got)
	}
}

func TestCommanded(t *testing.T) {
	before := mptcp.Counts{Announces: 5, Seen: 1}
	if got := commanded(before, mptcp.Counts{Announces: 5, Seen: 9}); got != "" {
		t.Errorf("nothing was done: %q", got)
	}
	if got := commanded(before, mptcp.Counts{Announces: 8, Removes: 1, Destroys: 2, Priorities: 4, Joins: 3}); !strings.Contains(got, "3 addresses of exits announced, 1 withdrawn, 2 subflows closed, 4 made a backup or no longer; clients opened 3") {
		t.Error(got)
	}
}

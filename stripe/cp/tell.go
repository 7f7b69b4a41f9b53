package cp

import (
	"slices"
	"time"

	"plait.dev/plait/stripe"
)

// linkGrace is how long a link may take before its want of a path is told, unless the connection ends before.
const linkGrace = 3 * time.Second

// linkSpent is what is said of a link that has reached its cap. The next run counts anew.
const linkSpent = "has reached its cap, which is for one run, and is used no more"

// settled leaves out links that are still tried for the first time: a proxy's connections, for one, are often over before.
func settled(links []stripe.LinkStats) []stripe.LinkStats {
	return slices.DeleteFunc(slices.Clone(links), func(l stripe.LinkStats) bool { return l.Error == stripe.NotYet })
}

// tellLinks says when a link cannot be used, and, before the end, when it can again; of one that nobody asked for and that has never carried anything, the last line alone
// says so if it comes first. It says so once for as long as that lasts: the reason is of the address tried last, of which there may be several.
func (t *Text) tellLinks(s Snapshot, which func([]stripe.LinkStats) []stripe.LinkStats, over bool) {
	if t.told == nil {
		t.told = map[string]string{}
	}
	t.tell("link ", which(s.Links), t.Named, over)
	works := func(l stripe.LinkStats) bool { return l.Error == "" }
	told := func(l stripe.LinkStats) bool { return t.told["link "+l.Name] != "" }
	if slices.ContainsFunc(s.Links, told) && !slices.ContainsFunc(s.Links, works) {
		return // no way leads to the other host's either, for the reasons just told
	}
	t.tell("far link ", which(s.FarLinks), t.FarNamed, over)
}

// tell says it of the links of one end.
func (t *Text) tell(what string, links []stripe.LinkStats, named map[string]stripe.Policy, over bool) {
	for _, l := range links {
		name := what + l.Name
		before := t.told[name]
		policy, asked := named[l.Name]
		if !asked && l.SentBytes+l.ReceivedBytes == 0 && before == "" && (over || t.Quiet) {
			continue
		}
		now, why := before, ""
		switch {
		case policy.CapBytes > 0 && len(l.Paths) > 0 && l.Paths[0].State == stripe.Spent: // otherwise it is that of the other end
			now = linkSpent
		case l.Error != "" && before != linkSpent:
			now, why = "is not used", ": "+l.Error
		case l.Error == "" && len(l.Paths) > 0 && before != "" && !over:
			now = "is used again"
		}
		if now != before {
			t.told[name] = now
			t.line("plait: " + name + " " + now + why)
		}
	}
}

// Watch tells of a connection's links that were asked for, while it lives and no newer one is watched.
func (t *Text) Watch(c *stripe.Conn) {
	t.mu.Lock()
	t.watched = c
	t.mu.Unlock()
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		over := false
		select {
		case <-c.Done():
			over = true
		case <-tick.C:
		}
		s := Snapshot{Links: c.Stats(), FarLinks: c.PeerStats()}
		t.mu.Lock()
		newest := t.watched == c
		if newest && over {
			t.tellLinks(s, settled, true)
		}
		t.mu.Unlock()
		if !newest || over {
			return
		}
		t.Progress(s)
	}
}

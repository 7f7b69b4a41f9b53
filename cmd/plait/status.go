package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
)

// exitNotUp is the exit status of commands that ask a daemon when there is none.
const exitNotUp = 3

// controlFlags say where the daemon listens.
type controlFlags struct {
	path   string
	unread error // why it is not known where the configuration says that it listens
}

func (f *controlFlags) add(c *cobra.Command) {
	c.Flags().Var((*fileFlag)(&f.path), "control", "ask the plait that listens on this `path` (default: as "+daemon.DefaultConfigPath+" says)")
}

// client is for the daemon that is meant. A configuration with mistakes must not keep anybody from plait down, so what can be
// read of it is enough.
func (f *controlFlags) client() *daemon.ControlClient {
	if f.path != "" {
		return daemon.Client(f.path)
	}
	c, err := daemon.ReadConfig(daemon.DefaultConfigPath)
	if c.Control == daemon.DefaultControl {
		f.unread = err
	}
	return daemon.Client(c.Control)
}

// doubt says why a plait that does not answer may be up all the same; empty: it is not.
func (f *controlFlags) doubt() string {
	if f.unread == nil {
		return ""
	}
	why, _, _ := strings.Cut(f.unread.Error(), "\n")
	return fmt.Sprintf("%s cannot be read (%s): if it has a control path of its own, name that with --control", daemon.DefaultConfigPath, why)
}

// unanswered is [unanswered] of what was asked where f says.
func (f *controlFlags) unanswered(err error) error {
	if doubt := f.doubt(); doubt != "" && errors.Is(err, daemon.ErrNotRunning) {
		err = fmt.Errorf("%w; %s", err, doubt)
	}
	return unanswered(err)
}

// unanswered gives the exit status to an error of the daemon or of not reaching it.
func unanswered(err error) error {
	switch {
	case errors.Is(err, daemon.ErrNotRunning):
		return &exit{exitNotUp, err}
	case errors.Is(err, daemon.ErrNoAnswer), errors.Is(err, daemon.ErrFailed), errors.Is(err, fs.ErrPermission):
		return &exit{1, err}
	}
	return err
}

func newStatus() *cobra.Command {
	return question("status", "Show what plait does and whether it helps", askStatus, func(out io.Writer, s daemon.Status) {
		printStatus(out, s, time.Now(), maxPrefixes, maxSockets)
	})
}

func askStatus(d *daemon.ControlClient, _ string) (daemon.Status, error) { return d.Status() }

func writeJSON(out io.Writer, value any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// The longest tables of plait status; --json has everything.
const (
	maxPrefixes = 20
	maxSockets  = 20
)

// chosen says how the congestion control of connections without a rule is chosen. The other levers have modes of their own.
func chosen(s daemon.Status) string {
	if s.Mode == daemon.Off {
		return "congestion off"
	}
	return fmt.Sprintf("mode %s, policy %s", s.Mode, s.Policy)
}

// printStatus draws what plait status and plait top show, with so many rows in its tables.
func printStatus(out io.Writer, s daemon.Status, now time.Time, prefixes, sockets int) {
	fmt.Fprintf(out, "plait %s, up for %s, %s", s.Version, now.Sub(s.UpSince).Round(time.Second), chosen(s))
	if s.Mode != daemon.Off || s.Rules > 0 {
		fmt.Fprintf(out, ", %g %% held out", s.HoldoutPercent)
	}
	if s.Rules > 0 {
		fmt.Fprintf(out, ", rules: %d", s.Rules)
	}
	fmt.Fprintf(out, "\nconnections: %d heard of and open; since plait came up: %d taken, %d held out on %s, %d returned to that, %d refused by the kernel, %d changes of congestion control\n",
		len(s.Sockets), s.Counters["attached"], s.Counters["held_out"], s.Default, s.Counters["fell_back"], s.Counters["refused"], s.Counters["switches"])
	if s.Egress != nil {
		fmt.Fprintln(out, exits(s.Egress))
	}
	if s.Ackpath != nil {
		fmt.Fprintln(out, copies(s.Ackpath))
	}
	for _, w := range s.Warnings {
		fmt.Fprintln(out, "warning:", w)
	}
	printPrefixes(out, s, prefixes)
	printSockets(out, s, sockets)
}

// exits is the lever egress in a line.
func exits(e *daemon.EgressSummary) string {
	return fmt.Sprintf("BGP exits: mode %s, %d exits, %d of %d sessions with route reflectors up, %d routes told; plait egress exits and sessions have more",
		e.Mode, e.Exits, e.Up, e.Sessions, e.Routes)
}

// printPrefixes shows the busiest first, which is the order they come in.
func printPrefixes(out io.Writer, s daemon.Status, rows int) {
	if len(s.Prefixes) == 0 {
		return
	}
	fmt.Fprintln(out, "\nLatency of bursts, managed / held out (geometric mean); the ratio with its 95 % interval:")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DESTINATION\tPOLICY\tCONNECTIONS\tUSES\tRTT ms\tLOST %\tMEAN ms\tP95 ms\tRATIO\t")
	for _, p := range s.Prefixes[:min(len(s.Prefixes), rows)] {
		m, h := p.Managed, p.Holdout
		uses, rtt, lost := open(p, s.Sockets)
		fmt.Fprintf(t, "%s\t%s\t%d / %d\t%s\t%s\t%s\t%s / %s\t%s / %s\t%s\t\n",
			p.Prefix, under(p.Policy, p.Rule), m.Connections, h.Connections, uses, rtt, lost, latency(m, m.MeanMs), latency(h, h.MeanMs), latency(m, m.P95Ms), latency(h, h.P95Ms), ratio(p))
	}
	t.Flush()
	more(out, len(s.Prefixes), rows)
}

// latency is one of a group's, of which there is none without bursts.
func latency(g daemon.Group, ms float64) string {
	if g.Bursts == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", ms)
}

// contains says whether a connection is one of a line's destination and rule.
func contains(p daemon.PrefixStatus, s daemon.SocketStatus) bool {
	return p.Policy == s.Policy && p.Rule == s.Rule && p.Prefix.Contains(s.Remote.Addr())
}

// under is a policy with the rule it is from, if it is from one.
func under(policy, rule string) string {
	if rule == "" {
		return policy
	}
	return policy + ", rule " + rule
}

// open says of a destination's connections that are there now what they use, the median of their round trips, and their losses.
func open(p daemon.PrefixStatus, sockets []daemon.SocketStatus) (uses, rtt, lost string) {
	var rtts []uint32
	var total daemon.Segments
	algorithms := map[string]int{}
	for _, s := range sockets {
		if !contains(p, s) {
			continue
		}
		rtts = append(rtts, s.Last.SRTTUs)
		total.Add(s.Total)
		algorithms[s.Algorithm]++
	}
	if len(rtts) == 0 {
		return "-", "-", "-"
	}
	slices.Sort(rtts)
	return strings.Join(slices.Sorted(maps.Keys(algorithms)), ", "), fmt.Sprintf("%.1f", float64(rtts[len(rtts)/2])/1000), losses(total)
}

// losses are shares of what was sent and heard of, as policies count them: lost singly, and in runs.
func losses(n daemon.Segments) string {
	sent := float64(max(n.Delivered+n.LostSingle+n.LostBurst, 1))
	return fmt.Sprintf("%.2f / %.2f", 100*float64(n.LostSingle)/sent, 100*float64(n.LostBurst)/sent)
}

// ratio says how much slower or faster managed connections are, and how sure that is.
func ratio(p daemon.PrefixStatus) string {
	d := p.Difference
	var words []string
	switch {
	case d.Ratio == 0:
		words = append(words, "nothing to compare yet")
	case d.High == 0:
		words = append(words, fmt.Sprintf("%.2f, too little to tell", d.Ratio))
	default:
		words = append(words, fmt.Sprintf("%.2f (%.2f to %.2f) %s", d.Ratio, d.Low, d.High, d.Verdict))
	}
	if p.Reverted {
		words = append(words, "reverted")
	}
	return strings.Join(words, ", ")
}

// printSockets shows the connections heard of last.
func printSockets(out io.Writer, s daemon.Status, rows int) {
	if len(s.Sockets) == 0 {
		return
	}
	sockets := slices.SortedStableFunc(slices.Values(s.Sockets), func(a, b daemon.SocketStatus) int { return cmp.Compare(b.Last.AtUs, a.Last.AtUs) })
	fmt.Fprintln(out, "\nConnections, lost singly / in runs, last burst / held out; plait why SOCKET gives the reason:")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SOCKET\tLOCAL\tREMOTE\tUSES\tWANTED\tRTT ms\tLOST %\tBURST ms\tRATE Mbit/s\tCWND\t")
	for _, k := range sockets[:min(len(sockets), rows)] {
		fmt.Fprintf(t, "sk:%x\t%s\t%s\t%s\t%s\t%.1f\t%s\t%s\t%s\t%d\t\n", k.Cookie, k.Local, k.Remote, k.Algorithm, k.Wanted,
			float64(k.Last.SRTTUs)/1000, losses(k.Total), burst(k, s.Prefixes), rate("%.1f", k.Last.RateBps), k.Last.CwndSegments)
	}
	t.Flush()
	more(out, len(sockets), rows)
}

// rate is one in Mbit/s; none of observed connections is measured.
func rate(format string, bps uint64) string {
	if bps == 0 {
		return "-"
	}
	return fmt.Sprintf(format, float64(bps)/1e6)
}

// burst is the latency of a connection's last one, and the mean of held-out connections to the same destination.
func burst(k daemon.SocketStatus, prefixes []daemon.PrefixStatus) string {
	managed, heldOut := "-", "-"
	if k.Last.BurstLatencyUs > 0 {
		managed = fmt.Sprintf("%.1f", float64(k.Last.BurstLatencyUs)/1000)
	}
	i := slices.IndexFunc(prefixes, func(p daemon.PrefixStatus) bool { return contains(p, k) })
	if i >= 0 {
		heldOut = latency(prefixes[i].Holdout, prefixes[i].Holdout.MeanMs)
	}
	return managed + " / " + heldOut
}

func more(out io.Writer, n, shown int) {
	if n > shown {
		fmt.Fprintf(out, "and %d more; plait status --json has all\n", n-shown)
	}
}

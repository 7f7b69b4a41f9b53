package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	path string
}

func (f *controlFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.path, "control", "", "ask the plait that listens on this `path` (default: as "+daemon.DefaultConfigPath+" says)")
}

// client is for the daemon that is meant. A configuration with mistakes must not keep anybody from plait down, so what can be
// read of it is enough.
func (f *controlFlags) client() *daemon.ControlClient {
	if f.path != "" {
		return daemon.Client(f.path)
	}
	c, _ := daemon.ReadConfig(daemon.DefaultConfigPath)
	return daemon.Client(c.Control)
}

// unanswered gives the exit status to an error of the daemon or of not reaching it.
func unanswered(err error) error {
	if errors.Is(err, daemon.ErrNotRunning) {
		return &exit{exitNotUp, err}
	}
	return err
}

func newStatus() *cobra.Command {
	var f controlFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what plait does and whether it helps",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := f.client().Status()
			if err != nil {
				return unanswered(err)
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), s)
			}
			printStatus(c.OutOrStdout(), s, time.Now())
			return nil
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON")
	return c
}

func writeJSON(out io.Writer, value any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// The longest tables on a terminal; --json has everything.
const (
	maxPrefixes = 20
	maxSockets  = 20
)

// printStatus draws what plait status and plait top show.
func printStatus(out io.Writer, s daemon.Status, now time.Time) {
	fmt.Fprintf(out, "plait %s, up for %s, mode %s, policy %s, %g %% held out", s.Version, now.Sub(s.UpSince).Round(time.Second), s.Mode, s.Policy, s.HoldoutPercent)
	if s.Rules > 0 {
		fmt.Fprintf(out, ", %d rules", s.Rules)
	}
	fmt.Fprintf(out, "\nconnections: %d managed, %d held out on %s, %d refused by the kernel, %d given back; %d changes of congestion control\n",
		s.Counters["attached"], s.Counters["held_out"], s.Default, s.Counters["refused"], s.Counters["fell_back"], s.Counters["switches"])
	for _, w := range s.Warnings {
		fmt.Fprintln(out, "warning:", w)
	}
	printPrefixes(out, s.Prefixes)
	printSockets(out, s.Sockets)
}

// printPrefixes shows the busiest first.
func printPrefixes(out io.Writer, all []daemon.PrefixStatus) {
	if len(all) == 0 {
		return
	}
	prefixes := slices.Clone(all)
	slices.SortStableFunc(prefixes, func(a, b daemon.PrefixStatus) int {
		return int(int64(b.Managed.Bursts+b.Holdout.Bursts) - int64(a.Managed.Bursts+a.Holdout.Bursts))
	})
	fmt.Fprintln(out, "\nLatency of bursts, managed / held out (geometric mean); the ratio with its 95 % interval:")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DESTINATION\tPOLICY\tCONNECTIONS\tMEAN ms\tP95 ms\tRATIO\t")
	for _, p := range prefixes[:min(len(prefixes), maxPrefixes)] {
		m, h := p.Managed, p.Holdout
		fmt.Fprintf(t, "%s\t%s\t%d / %d\t%.1f / %.1f\t%.1f / %.1f\t%s\t\n", p.Prefix, p.Policy, m.Connections, h.Connections, m.MeanMs, h.MeanMs, m.P95Ms, h.P95Ms, ratio(p))
	}
	t.Flush()
	more(out, len(prefixes), maxPrefixes)
}

// ratio says how much slower or faster managed connections are, and how sure that is.
func ratio(p daemon.PrefixStatus) string {
	d := p.Difference
	var words []string
	switch {
	case d.Ratio == 0:
		words = append(words, "nothing to compare yet")
	case d.High == 0:
		words = append(words, fmt.Sprintf("%.2f, too few connections", d.Ratio))
	default:
		words = append(words, fmt.Sprintf("%.2f (%.2f to %.2f) %s", d.Ratio, d.Low, d.High, d.Verdict))
	}
	if p.Reverted {
		words = append(words, "reverted")
	}
	return strings.Join(words, ", ")
}

// printSockets shows the connections heard of last.
func printSockets(out io.Writer, all []daemon.SocketStatus) {
	if len(all) == 0 {
		return
	}
	sockets := slices.Clone(all)
	slices.SortStableFunc(sockets, func(a, b daemon.SocketStatus) int {
		return int(int64(b.Last.AtUs) - int64(a.Last.AtUs))
	})
	fmt.Fprintln(out, "\nConnections; plait why SOCKET gives the reason:")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SOCKET\tLOCAL\tREMOTE\tUSES\tWANTED\tRTT ms\tRATE Mbit/s\tCWND\t")
	for _, s := range sockets[:min(len(sockets), maxSockets)] {
		fmt.Fprintf(t, "sk:%x\t%s\t%s\t%s\t%s\t%.1f\t%.1f\t%d\t\n", s.Cookie, s.Local, s.Remote, s.Algorithm, s.Wanted,
			float64(s.Last.SRTTUs)/1000, float64(s.Last.RateBps)/1e6, s.Last.CwndSegments)
	}
	t.Flush()
	more(out, len(sockets), maxSockets)
}

func more(out io.Writer, n, shown int) {
	if n > shown {
		fmt.Fprintf(out, "and %d more; plait status --json has all\n", n-shown)
	}
}

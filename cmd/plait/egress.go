package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
)

func newEgress() *cobra.Command {
	c := &cobra.Command{
		Use:   "egress",
		Short: "Show the BGP exits of this content server and what is sent through them",
		Long:  "Show the BGP exits of this content server and what is sent through them. A section egress of the configuration, and plait up, start it.",
		Args:  cobra.NoArgs, // an unknown command is an error, not a request for help
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newEgressExits(), newEgressSessions(), newEgressRoutes(), newEgressExplain(), newEgressPrefixes(), newEgressFlows(), newEgressLog(), newEgressCheck(), newEgressRender())
	return c
}

func newEgressExits() *cobra.Command {
	return question("exits", "List the exits, their routes and SIDs, and what is refused", egressStatus, printExits)
}

func egressStatus(d *daemon.ControlClient, _ string) (daemon.EgressStatus, error) { return d.Egress() }

func printExits(out io.Writer, s daemon.EgressStatus) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "EXIT\tKNOWN BY\tTABLE\tADDRESSES\tROUTES\tSIDS")
	for _, e := range s.Exits {
		addresses := make([]string, len(e.Addresses))
		for i, a := range e.Addresses {
			addresses[i] = a.String()
		}
		sids := slices.Sorted(maps.Keys(e.SIDs))
		if len(sids) > 3 {
			sids = append(sids[:3], fmt.Sprintf("and %d more", len(e.SIDs)-3))
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t%s\n", e.Name, cmp.Or(e.RouteTarget, "SIDs"), e.Table, strings.Join(addresses, " "), e.Routes, strings.Join(sids, " "))
	}
	t.Flush()
	for _, e := range s.Exits {
		if e.Out != nil {
			fmt.Fprintf(out, "exit %s is out since %s: nothing that is sent through it arrives. It is used again when something does, not before %s (see plait egress log)\n",
				e.Name, e.Out.Since.Local().Format(time.TimeOnly), e.Out.HeldUntil.Local().Format(time.TimeOnly))
		}
	}
	var traffic []daemon.NamedTraffic
	for _, e := range s.Exits {
		if e.Traffic != nil {
			traffic = append(traffic, daemon.NamedTraffic{Exit: e.Name, TrafficStatus: *e.Traffic})
		}
	}
	if s.Others != nil {
		traffic = append(traffic, daemon.NamedTraffic{TrafficStatus: *s.Others})
	}
	printTraffic(out, traffic)
	fmt.Fprintf(out, "main table: %d routes, %d of them with a standby\n", s.Main, s.Standby)
	switch {
	case s.Mode != daemon.On:
		fmt.Fprintf(out, "mode %s: nothing of this is in the kernel\n", s.Mode)
	case !s.Settled:
		fmt.Fprintln(out, "waiting for the reflectors' routes: the kernel has what was there before")
	case s.Lacking != "":
		fmt.Fprintln(out, "warning:", s.Lacking)
	}
	if s.MPTCP != nil {
		fmt.Fprintf(out, "MPTCP: %d connections of clients, %d subflows, %d addresses announced\n", s.MPTCP.Connections, s.MPTCP.Subflows, s.MPTCP.Announced)
	}
	if c := s.Census; c != nil {
		fmt.Fprintf(out, "connections to servers that listen for MPTCP: %d are MPTCP, %d fell back to TCP, %d are TCP from the start\n", c.MPTCP, c.Fallback, c.Plain)
	}
	printRefused(out, s)
}

func printRefused(out io.Writer, s daemon.EgressStatus) {
	for _, r := range s.Refused {
		fmt.Fprintf(out, "refused: %d routes of %s: %s (last: %s)\n", r.Routes, r.From, r.Reason, r.Last)
	}
}

func newEgressSessions() *cobra.Command {
	return question("sessions", "List the BGP sessions with the route reflectors, and what is refused of what they tell", egressStatus, func(out io.Writer, s daemon.EgressStatus) {
		for _, n := range s.Sessions {
			printSession(out, n)
		}
		printRefused(out, s)
	})
}

func printSession(out io.Writer, n daemon.SessionStatus) {
	state := n.State
	if state != "established" {
		state += ", down"
	}
	fmt.Fprintf(out, "%v: %s since %s\n", n.Reflector, state, n.Since.Local().Format(time.DateTime))
	for _, family := range slices.Sorted(maps.Keys(n.Routes)) {
		kept := ""
		if k := n.Kept[family]; k > 0 {
			kept = fmt.Sprintf(", %d of them kept of a session that was lost", k)
		}
		fmt.Fprintf(out, "  %s: %d routes%s\n", family, n.Routes[family], kept)
	}
	for _, a := range n.Agreed {
		fmt.Fprintf(out, "  %s\n", a)
	}
	if n.LastError != "" {
		fmt.Fprintf(out, "  last error, %s: %s\n", n.ErrorAt.Local().Format(time.DateTime), n.LastError)
	}
}

func newEgressRoutes() *cobra.Command {
	return question("routes [PREFIX]", "List the routes plait has for a prefix or an address, by exit", (*daemon.ControlClient).EgressRoutes, func(out io.Writer, a daemon.RoutesAnswer) {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "PREFIX\tEXIT\tTABLE\tTO")
		for _, r := range a.Routes {
			exit, to := r.Exit, ""
			switch {
			case r.Standby:
				exit = "standby of main"
			case exit == "":
				exit = "main"
			}
			if r.SID != nil {
				to = "SID " + r.SID.String()
			} else if r.NextHop != nil {
				to = "via " + r.NextHop.String()
			}
			fmt.Fprintf(t, "%v\t%s\t%d\t%s\n", r.Prefix, exit, r.Table, to)
		}
		t.Flush()
		if a.More {
			fmt.Fprintln(out, "there are more: name a prefix")
		}
	})
}

func newEgressExplain() *cobra.Command {
	return question("explain CLIENT", "Say which exits can reach a client's address, the best first, and why", (*daemon.ControlClient).EgressExplain, printExplanation)
}

func printExplanation(out io.Writer, e daemon.Explanation) {
	if len(e.Ways) == 0 {
		fmt.Fprintf(out, "no exit announces a prefix with %v: its connections stay on the default address\n", e.Client)
	}
	for i, w := range e.Ways {
		fmt.Fprintf(out, "%d. %s by %v, SID %v, AS path %v: %s\n", i+1, w.Exit, w.Prefix, w.SID, w.ASPath, w.Reason)
		if w.Exit == e.Main {
			fmt.Fprintln(out, "   BGP's best path leaves by it: connections begin here")
		}
		if w.RTTMs > 0 {
			fmt.Fprintf(out, "   the client's flows: round-trip time %.1f ms, %.1f Mbit/s in the last second, %.1f %% of the segments sent again\n", w.RTTMs, w.GoodputMbps, w.LossPercent)
		}
		if w.Failed {
			fmt.Fprintln(out, "   not used now: packets of this client's connections did not arrive through it; it is tried again (see plait egress log)")
		}
		if w.StandsBy != "" {
			fmt.Fprintf(out, "   stands by while another exit can carry: %s (see plait egress log)\n", w.StandsBy)
		}
		if w.Address != nil {
			fmt.Fprintf(out, "   announced to MPTCP clients as %v\n", w.Address)
		} else {
			fmt.Fprintln(out, "   has no address of the client's family: not announced")
		}
	}
	if e.Main == "" && len(e.Ways) > 0 {
		fmt.Fprintln(out, "BGP's best path leaves by none of these: connections begin there")
	}
	for _, s := range e.Services {
		of := "all connections"
		switch {
		case s.Selector != "":
			of = "connections of rule " + s.Selector
		case len(e.Services) > 1:
			of = "all other connections"
		}
		carry := slices.Clone(s.Carry)
		if i := slices.Index(carry, ""); i >= 0 {
			carry[i] = "the best path's exit"
		}
		fmt.Fprintf(out, "%s: data by %s: %s", of, strings.Join(carry, ", "), s.Reason)
		if s.HoldoutPercent > 0 {
			fmt.Fprintf(out, "; %g %% of them held out, by BGP's best path alone", s.HoldoutPercent)
		}
		fmt.Fprintln(out)
	}
	if e.Moved {
		fmt.Fprintln(out, "connections that begin now: data by BGP's best path alone, since more than moved_percent leaves by other exits")
	}
}

func newEgressPrefixes() *cobra.Command {
	return question("prefixes", "List what the exits are worth, by client prefix: connections under a strategy against held-out ones", egressPrefixes, func(out io.Writer, known []daemon.KnownStatus) {
		if len(known) == 0 {
			fmt.Fprintln(out, "nothing yet: transfers of 128 KB and more to clients with several exits are measured")
			return
		}
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "PREFIX\tSTRATEGY\tMbit/s\tSAMPLES\tHELD OUT Mbit/s\tSAMPLES\tTIME PER BYTE\tSTATE")
		for _, k := range known {
			ratio, state := "-", "in force"
			if k.Ratio > 0 {
				ratio = fmt.Sprintf("x %.2f (%.2f to %.2f)", k.Ratio, k.Low, k.High)
			}
			if !k.OneUntil.IsZero() {
				state = "best path alone until " + k.OneUntil.Local().Format(time.DateTime)
			}
			fmt.Fprintf(t, "%v\t%s\t%s\t%.0f\t%s\t%.0f\t%s\t%s\n", k.Prefix, k.Strategy, measured(k.ManagedMbps, k.Managed), k.Managed, measured(k.HeldOutMbps, k.HeldOut), k.HeldOut, ratio, state)
		}
		t.Flush()
	})
}

func egressPrefixes(d *daemon.ControlClient, _ string) ([]daemon.KnownStatus, error) {
	return d.EgressPrefixes()
}

// measured is a value that samples tell; without any there is none.
func measured(value, samples float64) string {
	if samples == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", value)
}

func newEgressLog() *cobra.Command {
	return question("log", "List the latest decisions, and changes of the kernel's routes and of connections, with their reasons", egressLog, func(out io.Writer, entries []daemon.JournalEntry) {
		for _, e := range entries {
			fmt.Fprintf(out, "%s %s\n", e.At.Local().Format("2006-01-02 15:04:05.000"), e.Text)
		}
	})
}

func egressLog(d *daemon.ControlClient, _ string) ([]daemon.JournalEntry, error) {
	return d.EgressLog()
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
)

func newAckpath() *cobra.Command {
	c := &cobra.Command{
		Use:   "ackpath",
		Short: "Show which acknowledgements are copied over a quicker link",
		Long: "Show which acknowledgements of downloads over several links (MPTCP) are copied over a quicker one, and for whom this host takes such\n" +
			"copies. A section ackpath of the configuration, and plait up, start the copying; a host that sends takes copies by itself while plait is up.",
		Args: cobra.NoArgs, // an unknown command is an error, not a request for help
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newAckpathStatus(), newAckpathExplain())
	return c
}

func newAckpathStatus() *cobra.Command {
	return question("status", "List the subflows, the ways to senders, and the subflows that copies are taken for", (*daemon.ControlClient).Ackpath, func(out io.Writer, s daemon.AckpathStatus) {
		printAckpath(out, s, time.Now())
	})
}

func newAckpathExplain() *cobra.Command {
	return question("explain HOST|CONNECTION", "Say of the connections with a host, or of one connection, what is copied and why", (*daemon.ControlClient).Ackpath, func(out io.Writer, s daemon.AckpathStatus) {
		explainAckpath(out, s, time.Now())
	})
}

func explainAckpath(out io.Writer, s daemon.AckpathStatus, now time.Time) {
	for _, f := range s.Flows {
		fmt.Fprintf(out, "%s-%s over %s: ", f.Local, f.Remote, cmp.Or(f.Link, "an unknown link"))
		if f.Copied.IsZero() {
			fmt.Fprintf(out, "its ACKs are not copied: %s\n", f.Because)
		} else {
			fmt.Fprintf(out, "its ACKs are copied over %s since %s: %s\n", f.Over, f.Copied.Local().Format(time.TimeOnly), f.Because)
		}
		if f.Copies > 0 {
			fmt.Fprintf(out, "  %d copies sent; the sender says: %d arrived, %d of them late%s\n", f.Copies, f.Arrived, f.Late, lead(f.LeadMs))
		}
	}
	if len(s.Flows) > 0 && s.Mode != daemon.On {
		fmt.Fprintf(out, "mode %s: nothing is copied\n", s.Mode)
	}
	for _, w := range s.Ways {
		fmt.Fprintln(out, way(w, now))
	}
	for _, t := range s.Taken {
		fmt.Fprintf(out, "%s-%s: copies of its ACKs are taken, from %s: %d came, %d were of use, %d late%s\n", t.Local, t.Remote, t.From, t.Copies, t.Used, t.Late, lead(t.LeadMs))
	}
}

// lead is how much sooner copies arrive, if that is known.
func lead(ms float64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprintf(", %.1f ms before their twins", ms)
}

// way is a way to a sender in a line.
func way(w daemon.AckWayStatus, now time.Time) string {
	name := fmt.Sprintf("%s over %s from %s: ", w.Server, w.Link, w.Source)
	switch idle := now.Sub(w.Used); {
	case idle > 2*time.Second: // longer than the time between two looks
		return name + fmt.Sprintf("no connection for %v", idle.Round(time.Second))
	case w.Lacks != "":
		return name + w.Lacks
	case w.Silent.After(now):
		return name + fmt.Sprintf("no answer; asked again in %v", w.Silent.Sub(now).Round(time.Second))
	case w.RTTMs == 0:
		return name + "no answer yet"
	case !w.Fair:
		return name + fmt.Sprintf("%.1f ms, but its congestion control does not correct for copies", w.RTTMs)
	}
	return name + fmt.Sprintf("%.1f ms", w.RTTMs)
}

func printAckpath(out io.Writer, s daemon.AckpathStatus, now time.Time) {
	if s.Lacks != "" {
		fmt.Fprintf(out, "this kernel can copy no ACKs: %s\n", s.Lacks)
		return
	}
	fmt.Fprintf(out, "receiver: mode %s, %d ACKs copied\n", s.Mode, s.Copies)
	if s.Trouble != "" {
		fmt.Fprintf(out, "receiver: %s\n", s.Trouble)
	} else if s.Mode != daemon.Off && len(s.Flows) == 0 {
		fmt.Fprintln(out, "receiver: no MPTCP connection has received something over more than one link in the last minute")
	}
	if len(s.Flows) > 0 {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "LOCAL\tREMOTE\tLINK\tCOPIED OVER\tCOPIES\tARRIVED\tLATE\tLEAD ms\tBECAUSE")
		for _, f := range s.Flows {
			over := "-"
			if !f.Copied.IsZero() {
				over = f.Over
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%.1f\t%s\n", f.Local, f.Remote, cmp.Or(f.Link, "-"), over, f.Copies, f.Arrived, f.Late, f.LeadMs, f.Because)
		}
		t.Flush()
	}
	for _, w := range s.Ways {
		fmt.Fprintln(out, "way to", way(w, now))
	}
	switch {
	case s.Silent != "":
		fmt.Fprintf(out, "sender: copies are not taken: %s\n", s.Silent)
		return
	case !s.Answers:
		fmt.Fprintln(out, "sender: copies are not taken: the lever congestion is not on, or answer is off in the section ackpath")
		return
	case !s.Fair:
		fmt.Fprintln(out, "sender: this plait's congestion control does not correct for copies, so no receiver copies")
	}
	fmt.Fprintf(out, "sender: UDP port %d, copies taken for %d subflows; %d came, %d of them late; %d datagrams ignored\n", s.Port, len(s.Taken), s.TakenCopies, s.LateCopies, s.Ignored)
	if len(s.Taken) > 0 {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "LOCAL\tREMOTE\tHELLOS FROM\tCOPIES\tUSED\tLATE\tLEAD ms")
		for _, f := range s.Taken {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%.1f\n", f.Local, f.Remote, f.From, f.Copies, f.Used, f.Late, f.LeadMs)
		}
		t.Flush()
	}
}

// copies is the lever ackpath in a line.
func copies(a *daemon.AckpathSummary) string {
	if a.Lacks != "" {
		return "copied ACKs: this kernel cannot: " + a.Lacks
	}
	return fmt.Sprintf("copied ACKs: mode %s, of %d subflows over a quicker link; taken for %d; plait ackpath status has more", a.Mode, a.Copied, a.Taken)
}

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"plait.dev/plait/daemon"
)

// none stands for an exit or a round-trip time that there is not.
const none = "-"

func exitName(name string) string {
	if name == "" {
		return none
	}
	return name
}

func roundTrip(ms float64) string {
	if ms == 0 {
		return none
	}
	return fmt.Sprintf("%.1f", ms)
}

// printTraffic shows what exits carry.
func printTraffic(out io.Writer, exits []daemon.NamedTraffic) {
	if len(exits) == 0 {
		return
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "EXIT\tFLOWS\tGOODPUT Mbit/s\tSHARE %\tRTT ms\tSENT AGAIN %\tSENT MB")
	for _, e := range exits {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.0f\t%s\t%.2f\t%.1f\n", exitName(e.Exit), e.Flows, e.GoodputMbps, e.SharePercent, roundTrip(e.RTTMs), e.LossPercent, float64(e.AckedBytes)/1e6)
	}
	t.Flush()
}

func printNetworks(out io.Writer, networks []daemon.NetworkStatus) {
	if len(networks) == 0 {
		return
	}
	fmt.Fprintln(out, "\nClient networks, of the last half minute:")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PREFIX\tEXIT\tFLOWS\tGOODPUT Mbit/s\tRTT ms\tSENT AGAIN %")
	for _, n := range networks {
		prefix := none
		if n.Prefix.IsValid() {
			prefix = n.Prefix.String()
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%.1f\t%s\t%.2f\n", prefix, exitName(n.Exit), n.Flows, n.GoodputMbps, roundTrip(n.RTTMs), n.LossPercent)
	}
	t.Flush()
}

func printFlows(out io.Writer, e daemon.EgressTraffic, rows int) {
	if len(e.Flows) == 0 {
		return
	}
	fmt.Fprintf(out, "\nFlows, of the last %.1f s:\n", e.Seconds)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LOCAL\tCLIENT\tEXIT\tGOODPUT Mbit/s\tRTT ms\tSEGMENTS\tSENT AGAIN")
	for _, f := range e.Flows[:min(len(e.Flows), rows)] {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f\t%s\t%d\t%d\n", f.Local, f.Client, exitName(f.Exit), f.GoodputMbps, roundTrip(f.RTTMs), f.SentSegments, f.Resent)
	}
	t.Flush()
	if e.Active > rows {
		fmt.Fprintf(out, "and %d more; plait egress flows has all\n", e.Active-min(len(e.Flows), rows))
	}
}

// printExitsView is plait top's second view, for a screen of some height.
func printExitsView(out io.Writer, v view, now time.Time, height int) {
	fmt.Fprintf(out, "plait %s, up for %s\n%s\n", v.Version, now.Sub(v.UpSince).Round(time.Second), exits(v.Egress))
	for _, w := range v.Warnings {
		fmt.Fprintln(out, "warning:", w)
	}
	if v.unseen != nil {
		fmt.Fprintln(out, v.unseen)
		return
	}
	const around = 2 + 1 + 2*3 + 1 + 1 // head, columns of exits, blank line, title and columns of both other tables, "and more", keys
	free := max(0, height-around-len(v.Warnings)-len(v.traffic.Exits))
	networks, flows := share(free, len(v.traffic.Networks), len(v.traffic.Flows))
	printTraffic(out, v.traffic.Exits)
	printNetworks(out, v.traffic.Networks[:networks])
	printFlows(out, v.traffic, flows)
}

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
)

func newWhy() *cobra.Command {
	c := question("why SOCKET", "Say why a connection uses its congestion control", (*daemon.ControlClient).Why, printWhy)
	c.Long = "Say why a connection uses its congestion control. SOCKET is one of its ends (192.0.2.1:443 or [2001:db8::1]:443), both\n" +
		"joined by -, or its cookie as ss -e and plait status show it (sk:1a). Of one that plait does not manage it says why, with status 2."
	c.Example = "  plait why 198.51.100.7:50000\n  plait why 192.0.2.1:443-198.51.100.7:50000\n  plait why sk:1a"
	return c
}

// printWhy says what is used, why, and what it was decided from.
func printWhy(out io.Writer, s daemon.SocketStatus) {
	fmt.Fprintf(out, "%s-%s (sk:%x) uses %s", s.Local, s.Remote, s.Cookie, s.Algorithm)
	if s.Wanted != s.Algorithm {
		fmt.Fprintf(out, ", should use %s", s.Wanted)
	}
	fmt.Fprintf(out, "\npolicy %s: %s\n", under(s.Policy, s.Rule), s.Because)
	if len(s.Scores) > 0 {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "\nCANDIDATE\tEXPECTED ms\tBY LOSS ms\tBY BOTTLENECK ms\t")
		for _, c := range s.Scores {
			fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t\n", c.Algorithm, c.LatencyMs, c.LossMs, c.BottleneckMs)
		}
		t.Flush()
	}
	printEvidence(out, s)
	l := s.Last
	fmt.Fprintf(out, "\nlast sample: RTT %.1f ms, least %.1f ms; rate %s; window %d segments of %d bytes\n",
		float64(l.SRTTUs)/1000, float64(l.MinRTTUs)/1000, rate("%.2f Mbit/s", l.RateBps), l.CwndSegments, l.MSS)
	fmt.Fprintf(out, "             in %.0f ms %d segments delivered, %d lost singly, %d lost in runs\n",
		float64(l.IntervalUs)/1000, l.Delivered, l.LostSingle, l.LostBurst)
	if l.BurstLatencyUs > 0 {
		fmt.Fprintf(out, "             last burst: %d bytes in %.1f ms\n", l.BurstBytes, float64(l.BurstLatencyUs)/1000)
	}
}

// printEvidence says what policy plait decides from, and whether it helps at this destination.
func printEvidence(out io.Writer, s daemon.SocketStatus) {
	l := s.Last
	if l.Bulk {
		fmt.Fprint(out, "\nseen: a transfer (bulk)")
	} else {
		fmt.Fprint(out, "\nseen: bursts")
	}
	if l.DispersionBps > 0 {
		fmt.Fprintf(out, "; trains of packets came through at %.2f Mbit/s", float64(l.DispersionBps)/1e6)
	}
	if q := s.AtLoss; q != nil {
		fmt.Fprintf(out, "; at the last loss the RTT was %.1f ms, the least %.1f ms", float64(q.RTTUs)/1000, float64(q.MinRTTUs)/1000)
	}
	fmt.Fprintln(out)
	if p := s.Destination; p != nil {
		fmt.Fprintf(out, "%s: bursts take %s ms, held out %s ms; ratio %s\n", p.Prefix, latency(p.Managed, p.Managed.MeanMs), latency(p.Holdout, p.Holdout.MeanMs), ratio(*p))
	}
}

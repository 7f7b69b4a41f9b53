package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/measure"
)

func newLinks() *cobra.Command {
	var f farFlags
	c := &cobra.Command{
		Use:   "links [HOST]",
		Short: "Show the links of this host, and what each gives now, to and from another host",
		Long: "Show the links of this host. With HOST, send as much as goes to it over all links together, then as much as goes from it, for some\n" +
			"seconds each, and show what each link gave, here and there. That is data which metered links count.",
		Example: "  plait links\n  plait links --links wlan0,eth0 server",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			defer t.Flush()
			if len(args) == 0 {
				if c.Flags().NFlag() > 0 {
					return errors.New("links: the flags are for measuring; name a host to measure to, as in plait links --links wlan0 server")
				}
				links, err := stripe.Links()
				if err != nil {
					return err
				}
				fmt.Fprintln(t, "LINK\tADDRESSES")
				for _, l := range links {
					fmt.Fprintf(t, "%s\t%s\n", l.Name, strings.Trim(fmt.Sprint(l.Addrs), "[]"))
				}
				return nil
			}
			opt, err := f.options(c)
			if err != nil {
				return err
			}
			rows, err := measure.Links(c.Context(), args[0], opt)
			if err != nil {
				return copied(err)
			}
			fmt.Fprintln(t, "LINK\tTO HOST Mbit/s\tFROM HOST Mbit/s\tRTT ms\t")
			for i, r := range rows {
				if r.Far && !rows[max(0, i-1)].Far {
					fmt.Fprintln(t, "LINK THERE\t\t\t\t")
				}
				fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t%s\n", r.Link, r.ToBps/1e6, r.FromBps/1e6, r.RTT.Seconds()*1000, r.Error)
			}
			return nil
		},
	}
	f.add(c)
	return c
}

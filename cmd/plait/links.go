package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/measure"
)

func newLinks() *cobra.Command {
	var f farFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "links [HOST]",
		Short: "Show the links of this host, and what each gives now, to and from another host",
		Long: "Show the links of this host. With HOST, send as much as goes to it over all links together, then as much as goes from it, for some\n" +
			"seconds each, and show what each link gave, here and there. That is data which metered links count.",
		Example: "  plait links\n  plait links --links wlan0,eth0 server",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				if n := c.Flags().NFlag(); n > 1 || n == 1 && !asJSON {
					return errors.New("links: the flags are for measuring; name a host to measure to, as in plait links --links wlan0 server")
				}
				links, err := stripe.Links()
				if err != nil {
					return err
				}
				return answered(c.OutOrStdout(), asJSON, links, listLinks)
			}
			opt, err := f.options(c)
			if err != nil {
				return err
			}
			rows, err := measure.Links(c.Context(), args[0], opt)
			if err != nil {
				return copied(err, exitFailed)
			}
			return answered(c.OutOrStdout(), asJSON, rows, listMeasured)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the links as JSON")
	return c
}

// answered prints a list as JSON, in which it is never null, or as a table.
func answered[T any](out io.Writer, asJSON bool, list []T, table func(io.Writer, []T)) error {
	if asJSON {
		return writeJSON(out, append([]T{}, list...))
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	table(t, list)
	return t.Flush()
}

func listLinks(t io.Writer, links []stripe.Link) {
	fmt.Fprintln(t, "LINK\tADDRESSES")
	for _, l := range links {
		fmt.Fprintf(t, "%s\t%s\n", l.Name, strings.Trim(fmt.Sprint(l.Addrs), "[]"))
	}
}

func listMeasured(t io.Writer, rows []measure.Link) {
	fmt.Fprintln(t, "LINK\tTO HOST Mbit/s\tFROM HOST Mbit/s\tRTT ms\t")
	for i, r := range rows {
		if r.Far && !rows[max(0, i-1)].Far {
			fmt.Fprintln(t, "LINK THERE\t\t\t\t")
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t%s\n", r.Link, r.ToBps/1e6, r.FromBps/1e6, r.RTT.Seconds()*1000, r.Error)
	}
}

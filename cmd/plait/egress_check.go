package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
	"plait.dev/plait/lab"
)

func newEgressCheck() *cobra.Command {
	var f controlFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "check",
		Short: "Find out whether packets really leave by each exit",
		Long: "Find out whether packets really leave by each exit: compare the kernel's tables with the plan, and send echo requests through every SID to destinations\n" +
			"of the exit's routes, hop by hop. Nothing is changed. The exit status is 1 if something failed; what is unknown has not.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			doing, end := lab.Busy(c.CommandPath())
			results, err := f.client().EgressCheck(c.Context(), doing)
			end()
			if err != nil {
				return f.unanswered(err)
			}
			if asJSON {
				err = writeJSON(c.OutOrStdout(), results)
			} else {
				printResults(c.OutOrStdout(), results)
			}
			for _, r := range results {
				if r.Outcome == daemon.CheckFailed {
					return &exit{status: 1}
				}
			}
			return err
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the results as JSON")
	return c
}

func printResults(out io.Writer, results []daemon.CheckResult) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range results {
		exit := r.Exit
		if exit == "" {
			exit = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.Outcome, exit, r.Check, r.Found)
		if r.Do != "" {
			fmt.Fprintf(t, "\t\t\tto do: %s\n", r.Do)
		}
	}
	t.Flush()
}

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
)

func newDoctor() *cobra.Command {
	var f controlFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether plait can work on this host",
		Long:  "Check whether plait can work on this host, and say what to do about what is missing. Nothing is changed. The exit status is 0\nif plait is usable and 1 if something it needs is missing.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			checks := daemon.Doctor(f.client().Path())
			if asJSON {
				if err := writeJSON(c.OutOrStdout(), checks); err != nil {
					return err
				}
			} else {
				printChecks(c.OutOrStdout(), checks)
			}
			if !daemon.Usable(checks) {
				return &exit{status: 1}
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the checks as JSON")
	return c
}

func printChecks(out io.Writer, checks []daemon.Check) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Health, c.Name, c.Found)
		if c.Do != "" {
			fmt.Fprintf(t, "\t\tto do: %s\n", c.Do)
		}
	}
	t.Flush()
}

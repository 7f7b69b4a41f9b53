package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newEgressFlows() *cobra.Command {
	var f controlFlags
	var seconds float64
	c := &cobra.Command{
		Use:   "flows",
		Short: "Write what each TCP flow and MPTCP subflow does, ten times a second, as CSV",
		Long: "Write what each TCP flow and MPTCP subflow does, ten times a second, as CSV, until Ctrl-C or for a time: a line for each that sent something or had\n" +
			"something acknowledged in the interval. docs/egress/flows.md has the columns, and how to load them.",
		Example: "  plait egress flows --seconds 60 > flows.csv",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("seconds") && !(seconds > 0 && seconds < 1e9) {
				return fmt.Errorf("--seconds %g: expected a number above 0, and less than 1e9", seconds)
			}
			if err := f.client().EgressFlows(c.Context(), seconds, c.OutOrStdout()); err != nil {
				return f.unanswered(err)
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().Float64Var(&seconds, "seconds", 0, "end after so many `seconds` (default: go on)")
	return c
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
)

func newDoctor() *cobra.Command {
	config := daemon.DefaultConfigPath
	var control string
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether plait can work on this host, and its configuration",
		Long: "Check whether plait can work on this host and can read its configuration, and say what to do about what is missing. Nothing is changed.\n" +
			"The exit status is 0 if plait is usable, 1 if something it needs is missing, and 2 if the configuration has mistakes, which are told on\n" +
			"standard error with line and column.",
		Example: "  plait doctor\n  plait doctor --config new.yaml    before it becomes " + daemon.DefaultConfigPath,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			read, wrong := daemon.ReadConfig(config)
			read.Control = cmp.Or(control, read.Control)
			checks := append([]daemon.Check{daemon.CheckConfig(config, read, wrong)}, daemon.Doctor(read)...)
			if asJSON {
				if err := writeJSON(c.OutOrStdout(), checks); err != nil {
					return err
				}
			} else {
				printChecks(c.OutOrStdout(), checks)
			}
			switch {
			case wrong != nil:
				return wrong
			case !daemon.Usable(checks):
				return &exit{status: 1}
			}
			return nil
		},
	}
	c.Flags().Var((*fileFlag)(&config), "config", "check this configuration `file`; the default one need not exist")
	c.Flags().Var((*fileFlag)(&control), "control", "ask the plait that listens on this `path` (default: as the configuration says)")
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

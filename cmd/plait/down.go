package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
)

func newDown() *cobra.Command {
	var f controlFlags
	c := &cobra.Command{
		Use:   "down",
		Short: "Give all connections back and take plait out of the kernel",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out := c.OutOrStdout()
			last, err := f.client().Stop(c.Context())
			switch {
			case errors.Is(err, daemon.ErrNotRunning):
				fmt.Fprintln(out, "plait is not up")
			case err != nil:
				return &exit{1, err}
			default:
				fmt.Fprintf(out, "plait is down (it was process %d)\n", last.PID)
				fmt.Fprintf(out, "  its connections are back on %s\n", last.Default)
				fmt.Fprintf(out, "  while it was up it managed %d connections and held out %d\n", last.Counters["attached"], last.Counters["held_out"])
			}
			// What a daemon that was killed has left, on kernels before 6.4. Nothing left is as wanted.
			if err := daemon.Cleanup(); err != nil {
				return &exit{1, err}
			}
			return nil
		},
	}
	f.add(c)
	return c
}

func newReload() *cobra.Command {
	var f controlFlags
	c := &cobra.Command{
		Use:   "reload",
		Short: "Read the configuration again; connections go on",
		Long:  "Read the configuration again and apply it without interrupting anything. If it has mistakes, the old one stays in force.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.client().Reload(); err != nil {
				return unanswered(err)
			}
			fmt.Fprintln(c.OutOrStdout(), "the configuration is in force")
			return nil
		},
	}
	f.add(c)
	return c
}

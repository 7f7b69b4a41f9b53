package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
)

// startsAgain says whether systemd starts plait again after it has ended with this result (systemd.exec(5)), Restart being on-failure: then the routes of
// its BGP exits stay for the next one. What took too long to stop was to be stopped.
func startsAgain(serviceResult string) bool {
	switch serviceResult {
	case "", "success", "timeout": // "": not under systemd
		return false
	}
	return true
}

// down ends the daemon that answers, if one does, and says whether one did.
func down(ctx context.Context, client *daemon.ControlClient, out io.Writer) (ended bool, err error) {
	last, err := client.Stop(ctx)
	switch {
	case errors.Is(err, daemon.ErrNotRunning):
		fmt.Fprintln(out, "plait is not up")
		return false, nil
	case err != nil:
		return false, err
	default:
		fmt.Fprintf(out, "plait is down (it was process %d)\n", last.PID)
		if taken := last.Counters["attached"]; taken > 0 {
			fmt.Fprintf(out, "  its connections are back on %s\n", last.Default)
			fmt.Fprintf(out, "  while it was up it took %d connections and held out %d\n", taken, last.Counters["held_out"])
		}
		return true, nil
	}
}

func newDown() *cobra.Command {
	var f controlFlags
	c := &cobra.Command{
		Use:        "down",
		SuggestFor: []string{"stop"},
		Short:      "Give all connections back and take plait out of the kernel",
		Long: "Give all connections back and take plait out of the kernel. If none is up, remove what one that was killed has left: connections\n" +
			"return, and what the lever egress has put into this network namespace goes.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.path != "" { // a mistyped one: the lock beside it would be made there
				if _, err := os.Stat(filepath.Dir(f.path)); err != nil {
					return fmt.Errorf("end the plait that listens on %s: %w", f.path, err)
				}
			}
			result := os.Getenv("SERVICE_RESULT")
			out, again, ended := c.OutOrStdout(), startsAgain(result), false
			if !again { // systemd's has ended already: another one that answers is not to be ended with it
				var err error
				if ended, err = down(c.Context(), f.client(), out); err != nil {
					return &exit{1, err}
				}
			}
			if doubt := f.doubt(); doubt != "" && !ended {
				fmt.Fprintf(out, "  %s\n", doubt)
			}
			left, err := daemon.Cleanup(f.client().Path(), !again)
			if (ended || result != "") && errors.As(err, new(daemon.Others)) { // the one that was meant is down
				err = nil
			}
			if left.Connections > 0 {
				fmt.Fprintf(out, "  %d connections that a plait that was killed had left are back on the system's default\n", left.Connections)
			}
			if left.Kept > 0 {
				fmt.Fprintf(out, "  %d connections keep the congestion control plait until they end: the kernel refuses to change it, as where a route locks it\n", left.Kept)
			}
			if left.Exits > 0 {
				fmt.Fprintf(out, "  what a plait that was killed had left is removed, in %d changes of routes, rules and addresses\n", left.Exits)
			}
			if err != nil {
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
				return f.unanswered(err)
			}
			fmt.Fprintln(c.OutOrStdout(), "the configuration is in force")
			return nil
		},
	}
	f.add(c)
	return c
}

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
)

// question is a command that asks the daemon, and shows the answer as text or as JSON. What use names behind the command is its argument, in brackets
// one that may be left out.
func question[T any](use, short string, ask func(*daemon.ControlClient, string) (T, error), show func(io.Writer, T)) *cobra.Command {
	args := cobra.NoArgs
	switch _, argument, _ := strings.Cut(use, " "); {
	case strings.HasPrefix(argument, "["):
		args = cobra.MaximumNArgs(1)
	case argument != "":
		args = cobra.ExactArgs(1)
	}
	var f controlFlags
	var asJSON bool
	c := &cobra.Command{
		Use: use, Short: short, Args: args, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "" { // an unset variable, not the question about all
				return fmt.Errorf("%s: its argument is empty", c.CommandPath())
			}
			answer, err := ask(f.client(), strings.Join(args, ""))
			if err != nil {
				return f.unanswered(err)
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), answer)
			}
			show(c.OutOrStdout(), answer)
			return nil
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return c
}

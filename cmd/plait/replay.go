package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"plait.dev/plait/congestion"
	"plait.dev/plait/signals"
)

func newReplay() *cobra.Command {
	var policy string
	var asJSON, all bool
	c := &cobra.Command{
		Use:   "replay LOG --policy POLICY",
		Short: "Show what a policy would have chosen for recorded samples",
		Long: "Read samples, one JSON object per line, and print each change of a socket's choice: time in seconds, the socket's\n" +
			"cookie as ss -e shows it (sk:1a; with --json a number, as in the samples), the congestion control, and why. The samples stay as\n" +
			"they were recorded.",
		Example: "  plait replay samples.jsonl --policy rtcp",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			anew := func() (func() congestion.Policy, error) { return congestion.New(policy) }
			if _, err := anew(); err != nil { // which is no mistake of the log
				return err
			}
			log, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { _ = log.Close() }()
			w := bufio.NewWriter(os.Stdout)
			write := printText
			if asJSON {
				write = printJSON
			}
			empty := true
			err = congestion.Replay(log, anew, func(s signals.Sample, c congestion.Choice, changed bool) {
				empty = false
				if all || changed {
					write(w, s, c)
				}
			})
			if err != nil {
				err = fmt.Errorf("%s:%w", args[0], err)
			} else if empty {
				fmt.Fprintf(c.ErrOrStderr(), "%s has no samples; plait up --signal-log records them\n", args[0])
			}
			if written := w.Flush(); written != nil {
				return &exit{1, fmt.Errorf("write the output: %w", errors.Join(written, err))}
			}
			return err
		},
	}
	c.Flags().StringVar(&policy, "policy", "", "the `policy`: "+strings.Join(congestion.Names(), ", "))
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object per line, with all scores")
	c.Flags().BoolVar(&all, "all", false, "print every sample, not only changes")
	_ = c.MarkFlagRequired("policy")
	completeFlag(c, "policy", congestion.Names)
	return c
}

// A bufio.Writer keeps its first error for Flush.

func printText(w io.Writer, s signals.Sample, c congestion.Choice) {
	name := c.Algorithm.String()
	if c.Bulk != c.Algorithm {
		name += ", transfers " + c.Bulk.String()
	}
	fmt.Fprintf(w, "%d.%06d sk:%x %s: %s\n", s.AtUs/1e6, s.AtUs%1e6, s.Cookie, name, c.Because)
}

func printJSON(w io.Writer, s signals.Sample, c congestion.Choice) {
	_ = json.NewEncoder(w).Encode(struct {
		AtUs   uint64 `json:"at_us"`
		Cookie uint64 `json:"cookie"`
		congestion.Choice
	}{s.AtUs, s.Cookie, c})
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"plait.dev/plait/lab/report"
	"plait.dev/plait/lab/result"
)

func newLabReport() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:     "report RESULT.json...",
		Short:   "Make one HTML report of result files",
		Example: "  plait lab report results/*.json --out report.html",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var files []*result.File
			for _, path := range args {
				f, err := result.Read(path)
				if err != nil {
					return err
				}
				files = append(files, f)
			}
			if err := report.Write(out, files, report.Options{}); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), "report:", out)
			return nil
		},
	}
	c.Flags().StringVar(&out, "out", "report.html", "the report's `file`")
	return c
}

func newLabDiff() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "diff A.json B.json",
		Short: "Compare two result files: what changed beyond the spread over seeds",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			a, err := result.Read(args[0])
			if err != nil {
				return err
			}
			b, err := result.Read(args[1])
			if err != nil {
				return err
			}
			d := result.Diff(a, b)
			if asJSON {
				return errors.Join(json.NewEncoder(c.OutOrStdout()).Encode(d), d.Comparable())
			}
			return d.WriteText(c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the comparison as JSON")
	return c
}

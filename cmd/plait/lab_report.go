package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"plait.dev/plait/lab"
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
			for _, path := range args {
				if sameFile(path, out) {
					return fmt.Errorf("report: --out %s is the result file %s, whose place the page would take: give another file", out, path)
				}
			}
			var files []*result.File
			doing, end := lab.Busy("report")
			defer end()
			for _, path := range args {
				doing("reading " + path)
				f, err := result.Read(path)
				if err != nil {
					return err
				}
				files = append(files, f)
			}
			doing("drawing it")
			if err := report.Write(out, files, report.Options{}); err != nil {
				return err
			}
			end()
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
			doing, end := lab.Busy("diff")
			defer end()
			doing("reading " + args[0])
			a, err := result.Read(args[0])
			if err != nil {
				return err
			}
			doing("reading " + args[1])
			b, err := result.Read(args[1])
			if err != nil {
				return err
			}
			doing("comparing")
			d := result.Diff(a, b)
			end()
			if asJSON {
				return errors.Join(json.NewEncoder(c.OutOrStdout()).Encode(d), d.Comparable())
			}
			return d.WriteText(c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the comparison as JSON")
	return c
}

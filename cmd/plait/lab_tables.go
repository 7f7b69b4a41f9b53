package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"plait.dev/plait/lab/result"
	"plait.dev/plait/lab/table"
)

func newLabTables() *cobra.Command {
	return &cobra.Command{
		Use:   "tables DIR RESULT.json...",
		Short: "Make the tables of policy rtcp of measured latencies",
		Long: "Write the three tables of a set for policy rtcp into DIR, from result files of rtcp-table-loss and\n" +
			"rtcp-table-bottleneck. A set in congestion/table is compiled in.",
		Example: "  plait lab run rtcp-table-loss rtcp-table-bottleneck --json results --resume\n" +
			"  plait lab tables congestion/table/linux-6.12 results/*.json",
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var files []*result.File
			for _, path := range args[1:] {
				f, err := result.Read(path)
				if err != nil {
					return err
				}
				files = append(files, f)
			}
			if err := table.Write(args[0], files); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), "tables:", args[0])
			return nil
		},
	}
}

package main

import (
	"github.com/spf13/cobra"
)

func newLabDemo() *cobra.Command {
	f := runFlags{report: "plait-demo.html", captures: "."}
	return &cobra.Command{
		Use:   "demo",
		Short: "Show what several paths are worth: two BGP exits, and a cellular link",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c, []string{"demo-exits", "demo-bursts"})
		},
	}
}

func newLabReproduce() *cobra.Command {
	f := runFlags{all: true}
	c := &cobra.Command{
		Use:   "reproduce",
		Short: "Run all of plait's own experiments and write one report",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			names, err := f.choose(nil)
			if err != nil {
				return err
			}
			return f.run(c, names)
		},
	}
	f.add(c)
	f.report, f.json = "plait-report.html", "plait-results"
	c.Flags().Lookup("report").DefValue = f.report
	c.Flags().Lookup("json").DefValue = f.json
	return c
}

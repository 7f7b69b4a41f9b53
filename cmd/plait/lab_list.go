package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/topo"
)

func newLabList() *cobra.Command {
	var topologies bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List plait's own experiments",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			if topologies {
				for _, t := range experiment.Topologies() {
					fmt.Fprintf(w, "%s\t%s\n", t.Name, t.Question)
				}
				return w.Flush()
			}
			fmt.Fprintln(w, "NAME\tGROUP\tQUESTION")
			for _, e := range experiment.List() {
				fmt.Fprintf(w, "%s\t%s\t%s\n", e.Name, e.Group, e.Question)
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&topologies, "topologies", false, "list the topologies experiments can build on instead")
	return c
}

// values of a parameter, in the order in which the cells have them.
func values(cells []experiment.Cell, name string) []string {
	var all []string
	for _, c := range cells {
		if v := fmt.Sprint(c.Params[name]); !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

func showBounds(out io.Writer, bounds []experiment.Bound) {
	for _, b := range bounds {
		fmt.Fprintf(out, "bound: %s\n", b.Expect)
		if b.When != "" {
			fmt.Fprintf(out, "       when %s\n", b.When)
		}
		if over := map[string]string{"seed": "with every seed", "all": "over all points"}[b.Over]; over != "" {
			fmt.Fprintf(out, "       %s\n", over)
		}
		fmt.Fprintf(out, "       because %s\n", b.Because)
	}
}

func newLabShow() *cobra.Command {
	var o experiment.Options
	var text bool
	c := &cobra.Command{
		Use:   "show NAME|FILE",
		Short: "Draw an experiment's topology and list its traffic, events, parameters and bounds",
		Long: `Draw an experiment's topology, of its first cell, and list its applications and events as its file has them, the parameters of its cells, and its bounds.

One of plait's own is a start for yours; its name is that of the file:
    plait lab show tcp-single --yaml | sed 's/^name: .*/name: mine/' > mine.yaml`,
		Args: cobra.ExactArgs(1),

		ValidArgsFunction: completeExperiment,
		RunE: func(c *cobra.Command, args []string) error {
			e, err := loadAlone(c, args[0], o)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if text {
				fmt.Fprint(out, e.File)
				return nil
			}
			cells := e.Cells()
			t, err := topo.New(cells[0].Spec)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s (%s)\n%s\n\n%s\n", e.Spec.Name, e.Spec.Group, e.Spec.Question, t.Draw())
			for _, key := range []string{"apps", "timeline"} {
				if section := e.Section(key); section != "" {
					fmt.Fprintln(out, section)
				}
			}
			fmt.Fprintf(out, "cells: %d; the first: %s, seed %d", len(cells), cells[0].Variant, cells[0].Seed)
			for _, name := range slices.Sorted(maps.Keys(cells[0].Params)) {
				fmt.Fprintf(out, ", %s %v", name, cells[0].Params[name])
			}
			fmt.Fprintln(out)
			for _, axis := range e.Axes {
				for _, name := range axis.Names {
					fmt.Fprintf(out, "matrix: %s %s\n", name, strings.Join(values(cells, name), " "))
				}
			}
			fmt.Fprintf(out, "variants: %s; seeds: %d\n", strings.Join(e.Variants, " "), e.Seeds)
			showBounds(out, e.Spec.Bounds)
			return nil
		},
	}
	c.Flags().StringArrayVar(&o.Set, "set", nil, "replace a parameter or value (`key=value`)")
	c.Flags().StringVar(&o.Traces, "traces", "", "`directory` with recorded links")
	c.Flags().BoolVar(&text, "yaml", false, "print the experiment's file instead, as it is")
	return c
}

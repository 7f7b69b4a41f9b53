package main

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"plait.dev/plait/lab/experiment"
)

// completeExperiment offers plait's own experiments to the shell, with their questions; where none matches, the shell offers files.
func completeExperiment(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var offered []cobra.Completion
	for _, e := range experiment.List() {
		offered = append(offered, cobra.CompletionWithDesc(e.Name, e.Question))
	}
	return offered, cobra.ShellCompDirectiveDefault
}

// offerNoFiles has the shell offer no files where a command and those below it would refuse one: where they take no argument.
func offerNoFiles(c *cobra.Command) {
	if c.ValidArgsFunction == nil && c.ValidateArgs(make([]string, 1)) != nil && c.ValidateArgs(make([]string, 2)) != nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range c.Commands() {
		offerNoFiles(below)
	}
}

// groups are those of plait's own experiments, sorted.
func groups() []string {
	set := map[string]bool{}
	for _, e := range experiment.List() {
		set[e.Group] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// completeFlag offers values of a flag to the shell, and no files.
func completeFlag(c *cobra.Command, flag string, values func() []string) {
	err := c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the command has no such flag
	}
}

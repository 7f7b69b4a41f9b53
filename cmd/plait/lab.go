package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newLab() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "Run experiments on real kernels in virtual time",
		Long: `Run experiments on real kernels in virtual time.

An experiment is a YAML file that asks one question: it declares nodes, links, routers, applications, a timeline, what is
measured, and bounds that must hold. Each cell of its parameter matrix runs in a virtual machine of its own, in which
one instruction takes one nanosecond: the same file, seed, image and QEMU give the same bytes on a busy host and on an idle one. That needs the right to real-time
priorities, which root has; without it digits may differ on a busy host.

Exit status: 0 all bounds hold, 1 a bound does not hold, 2 bad input, 3 a precondition failed, 130 interrupted.`,
		Args: cobra.NoArgs, // an unknown command is an error, not a request for help
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },

		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return emptyFlag(c.Flags()) },
	}
	c.AddCommand(heeding(newLabRun()), newLabList(), newLabShow(), heeding(newLabShell()), heeding(newLabImage()), newLabReport(), newLabDiff(), newLabTables(), heeding(newLabDemo()), heeding(newLabReproduce()))
	return c
}

// emptyFlag is an error if a flag is given an empty value: that is an unset variable, not leave to throw a result away or to make an image anew.
func emptyFlag(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.String() == "" && err == nil {
			err = fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name)
		}
	})
	return err
}

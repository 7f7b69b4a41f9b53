package main

import (
	"github.com/spf13/cobra"

	"plait.dev/plait/stripe/cp"
)

func newStripe() *cobra.Command {
	c := &cobra.Command{
		Use:   "stripe",
		Short: "The far side of plait cp",
	}
	c.AddCommand(newStripeServe())
	return c
}

func newStripeServe() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "What plait cp starts on the far side, by ssh: it is not meant to be typed",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cp.ServeSSH(c.InOrStdin(), c.OutOrStdout()); err != nil {
				return &exit{status: exitFailed, err: err}
			}
			return nil
		},
	}
}

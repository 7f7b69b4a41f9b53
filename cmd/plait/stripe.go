package main

import (
	"github.com/spf13/cobra"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/cp"
	"plait.dev/plait/stripe/pipe"
	"plait.dev/plait/stripe/ssh"
)

func newStripe() *cobra.Command {
	c := &cobra.Command{
		Use:   "stripe",
		Short: "The far side of plait cp, pipe and links",
	}
	c.AddCommand(newStripeServe())
	return c
}

func newStripeServe() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "What plait cp, pipe and links start on the far side, by ssh: it is not meant to be typed",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			err := ssh.Serve(c.InOrStdin(), c.OutOrStdout(), func(conn *stripe.Conn, run string) error {
				if run != "" {
					return pipe.Serve(conn, run)
				}
				defer conn.Close()
				return cp.Serve(conn)
			})
			if err != nil {
				return &exit{status: exitFailed, err: err}
			}
			return nil
		},
	}
}

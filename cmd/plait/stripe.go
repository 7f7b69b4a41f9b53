package main

import (
	"github.com/spf13/cobra"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/cp"
	"plait.dev/plait/stripe/pipe"
	"plait.dev/plait/stripe/proxy"
	"plait.dev/plait/stripe/ssh"
)

func newStripe() *cobra.Command {
	c := &cobra.Command{
		Use:   "stripe",
		Short: "A proxy over all links, and the far side of plait cp, pipe and links",
		Args:  cobra.NoArgs, // an unknown command is an error, not a request for help
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(heeding(newStripeProxy()), newStripeServe()) // a signal ends the far side at once; the near side goes on from what there is
	return c
}

func newStripeProxy() *cobra.Command {
	var f farFlags
	var at string
	c := &cobra.Command{
		Use:   "proxy HOST",
		Short: "Offer a SOCKS5 and HTTP proxy whose connections go over all links to a host, and on from there",
		Long: "Offer a proxy on this host, for programs that cannot be changed: SOCKS5 and HTTP CONNECT on one port. Each connection goes over all\n" +
			"links to HOST, where plait makes the connection that was asked for. Whoever reaches the port can use it.",
		Example: "  plait stripe proxy server\n  curl --proxy socks5h://127.0.0.1:1080 https://example.org/",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			opt, err := f.options(c)
			if err != nil {
				return err
			}
			if err := wrongAddress("at", at); err != nil {
				return err
			}
			text := &cp.Text{Out: c.ErrOrStderr(), Named: opt.Links, FarNamed: opt.FarLinks}
			watch := func(conn *stripe.Conn) { go text.Watch(conn) }
			return copied(proxy.Run(c.Context(), args[0], at, opt, text.Say, watch), exitFailed)
		},
	}
	f.add(c)
	c.Flags().StringVar(&at, "at", "127.0.0.1:1080", "address and port of the proxy")
	return c
}

func newStripeServe() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "What plait cp, pipe and links start on the far side, by ssh: it is not meant to be typed",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			err := ssh.Serve(c.InOrStdin(), c.OutOrStdout(), ssh.Handler{Many: proxy.Serve, One: func(conn *stripe.Conn, run string, first []byte) error {
				if run != "" {
					return pipe.Serve(conn, run)
				}
				defer conn.Close()
				if err := cp.Serve(conn, first); err != nil {
					return err
				}
				_ = conn.Flush() // what is said last decides about success, and links may be gone for minutes; the near side may have closed
				return nil
			}})
			if err != nil {
				return &exit{status: exitFailed, err: err}
			}
			return nil
		},
	}
}

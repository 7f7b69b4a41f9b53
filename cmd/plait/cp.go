package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/cp"
	"plait.dev/plait/stripe/ssh"
)

// exitFailed is the status of a copy that is not complete.
const exitFailed = 1

// farFlags say how to reach the far side, and over which links.
type farFlags struct {
	links, farLinks, ssh, plait, listen, carrier string
}

func (f *farFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.links, "links", "", "links of this host to use, and how: wlan0,wwan0=0.5,eth0:cap=2GB,usb0:backup,ppp0:priority=1; a cap is for one run, the next one counts anew (default all)")
	c.Flags().StringVar(&f.farLinks, "far-links", "", "links of the far side to use, and how, written as for --links (default all)")
	c.Flags().StringVarP(&f.ssh, "rsh", "e", "ssh", "ssh command and its options, separated by spaces")
	c.Flags().StringVar(&f.plait, "remote-plait", "plait", "plait on the far side")
	c.Flags().StringVar(&f.listen, "listen", ":0", "address and port the far side listens at, such as :7788")
	c.Flags().StringVar(&f.carrier, "carrier", "", "what goes over each link: tcp (TLS over TCP), quic (over UDP) or sctp (TLS over SCTP) (default tcp)")
	completeFlag(c, "carrier", func() []string { return []string{string(stripe.TCP), string(stripe.QUIC), string(stripe.SCTP)} })
}

func (f *farFlags) options(c *cobra.Command) (o ssh.Options, err error) {
	o = ssh.Options{Command: strings.Fields(f.ssh), Plait: f.plait, Listen: f.listen, Carrier: stripe.Carrier(f.carrier)}
	if err := o.Carrier.Validate(); err != nil {
		return o, err
	}
	if err := wrongAddress("listen", f.listen); err != nil {
		return o, err
	}
	if c.Flags().Changed("links") { // an empty one is an unset variable, not leave to use them all
		if o.Links, err = stripe.ParseLinks(f.links); err != nil {
			return o, err
		}
	}
	if c.Flags().Changed("far-links") {
		o.FarLinks, err = stripe.ParseLinks(f.farLinks)
	}
	return o, err
}

// wrongAddress says what is wrong with a flag that is an address to listen at; on the far side that would be an answer of ssh.
func wrongAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("--%s %s: expected an address and a port, or the port alone, such as 192.0.2.1:7788, [2001:db8::1]:7788 or :7788", flag, address)
	}
	return nil
}

func newCp() *cobra.Command {
	var f farFlags
	var json, quiet, checksum bool
	c := &cobra.Command{
		Use:   "cp SRC... DST",
		Short: "Copy files to or from another host, over all links of both",
		Long: "Copy files and directories to or from another host, over all links of both. One side is user@host:path, where plait must be\n" +
			"installed: it is started there by ssh, which carries keys and addresses; the data goes over all links at once, encrypted. Content is\n" +
			"verified. Interrupted, the same command goes on where it stopped; files that are there already, with the same size and time, are\n" +
			"not sent again. Status 1: something was not copied. Status 2: the command line or a link is wrong.",
		Example: "  plait cp film.mkv user@server:films/\n  plait cp --links wlan0,wwan0=0.5 server:data .\n  plait cp --links eth0,wwan0:cap=2GB -e 'ssh -p 2222' photos server:",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			job, err := cp.Parse(args)
			if err != nil {
				return err
			}
			job.Checksum = checksum
			if job.SSH, err = f.options(c); err != nil {
				return err
			}
			columns := func() int {
				n, _, _ := term.GetSize(int(os.Stderr.Fd()))
				return n
			}
			var out cp.Reporter = &cp.Text{Out: c.ErrOrStderr(), Columns: columns, Named: job.SSH.Links, FarNamed: job.SSH.FarLinks, Quiet: quiet}
			if json {
				out = &cp.JSON{Out: c.OutOrStdout()}
			}
			return copied(job.Run(c.Context(), out), exitFailed)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&json, "json", false, "write progress and problems as JSON, an object on a line")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "write problems only")
	c.Flags().BoolVarP(&checksum, "checksum", "c", false, "compare files that are there by content, not by size and time")
	exclusive(c, "json", "quiet")
	return c
}

// copied gives the outcome of a copy, or of what goes over a connection like one, its status.
func copied(err error, failed int) error {
	var wrong *ssh.LinkError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errInterrupted):
		return &exit{status: 130, err: err}
	case errors.As(err, &wrong), errors.Is(err, ssh.ErrHost):
		return err
	}
	return &exit{status: failed, err: err}
}

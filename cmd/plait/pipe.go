package main

import (
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/cp"
	"plait.dev/plait/stripe/pipe"
)

// exitLost is the status where none of the command's came: ssh's, which few commands have.
const exitLost = 255

func newPipe() *cobra.Command {
	var f farFlags
	c := &cobra.Command{
		Use:   "pipe HOST COMMAND...",
		Short: "Run a command on another host, its input and output over all links of both",
		Long: "Run a command on another host by ssh, with its standard input, output and error over all links of both hosts. The exit status is\n" +
			"the command's, and as with ssh 255 where there is none: a signal ended the command, there was no connection, or it was lost.\n" +
			"Status 2: the command line or a link is wrong.",
		Example: "  tar c photos | plait pipe server tar x -C /srv\n  plait pipe server pg_dump shop | psql shop",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			opt, err := f.options(c)
			if err != nil {
				return err
			}
			words := args[1:]
			if words[0] == "--" { // ssh's end of options, too
				words = words[1:]
			}
			command := strings.Join(words, " ")
			if command == "" {
				return errors.New("pipe: the command is empty; give one after the host, such as: plait pipe server cat file")
			}
			text := &cp.Text{Out: c.ErrOrStderr(), Named: opt.Links, FarNamed: opt.FarLinks}
			var watching sync.WaitGroup
			watch := func(conn *stripe.Conn) { watching.Go(func() { text.Watch(conn) }) }
			status, err := pipe.Run(c.Context(), args[0], command, c.InOrStdin(), os.Stdout, c.ErrOrStderr(), opt, watch)
			watching.Wait() // it has something to say at the end
			if err != nil {
				return copied(err, exitLost)
			}
			if status != 0 {
				return &exit{status: status}
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().SetInterspersed(false) // what follows the host belongs to the command
	return c
}

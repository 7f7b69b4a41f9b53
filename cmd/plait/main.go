// Command plait weaves every path a Linux host has into one fast, steady connection.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plait.dev/plait/daemon"
	"plait.dev/plait/lab"
	"plait.dev/plait/lab/agent"
	"plait.dev/plait/lab/emu"
)

// version is set by the build.
var version = "dev"

// exit carries an exit status that is not the one of bad input.
type exit struct {
	status int
	err    error
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

// errInterrupted is why a run ends on Ctrl-C.
var errInterrupted = errors.New("interrupted")

func newRoot(out io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "plait",
		Short: "Weave every path a Linux host has into one fast, steady connection",
		Long: `plait measures what each path of a Linux host does, and picks while connections run.

    plait up     the congestion control of each connection; a content server's BGP exits; ACKs over the quicker link
    plait cp     files over all links of two hosts at once, without root; pipe and stripe proxy for everything else
    plait lab    questions about networks, answered by real kernels in virtual time`,
		Version: version,

		DisableSuggestions: true, // hinted has them, in one line
		SilenceUsage:       true,
		SilenceErrors:      true,
	}
	root.AddCommand(newUp(), newDown(), newReload(), newStatus(), newTop(), newWhy(), newDoctor(), newEgress(), newAckpath(), newLab(), newReplay(), newMan(),
		heeding(newCp()), heeding(newPipe()), heeding(newLinks()), newStripe())
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return flagError{fmt.Errorf("%w; see %s --help", wrongValue(err), c.CommandPath())}
	})
	root.SetOut(out)
	root.InitDefaultCompletionCmd() // its commands keep the output there is now
	root.InitDefaultHelpCmd()
	root.InitDefaultVersionFlag() // for the manual page: it is made before cobra adds what it shows in help
	for _, c := range root.Commands() {
		switch c.Name() { // or cobra shows help for what it does not know, too, and ends with 0
		case "completion":
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		case "help":
			c.Args = func(_ *cobra.Command, topic []string) error {
				found, rest, err := root.Find(topic)
				if err == nil && len(rest) > 0 {
					err = fmt.Errorf("unknown command %q for %q", rest[0], found.CommandPath())
				}
				return err
			}
		}
	}
	offerNoFiles(root)
	return root
}

// wrongValue says what is wrong with a flag's value, where the library shows an error of Go's.
func wrongValue(err error) error {
	var wrong *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &wrong) || !errors.As(err, &number) {
		return err
	}
	want, known := map[string]string{"int": "a whole number", "float64": "a number", "bool": "true or false"}[wrong.GetFlag().Value.Type()]
	if !known {
		return err
	}
	if errors.Is(number, strconv.ErrRange) {
		want += ", this one is too large"
	}
	return fmt.Errorf("--%s %q: expected %s", wrong.GetFlag().Name, wrong.GetValue(), want)
}

// fileFlag is a file to read. An empty name is an unset variable, not leave to do without.
type fileFlag string

func (f *fileFlag) String() string { return string(*f) }
func (f *fileFlag) Type() string   { return "file" }
func (f *fileFlag) Set(path string) error {
	if path == "" {
		return errors.New("it names no file")
	}
	*f = fileFlag(path)
	return nil
}

// exclusive are two flags of which a command takes one. The library's own words for it are "if any flags in the group are set none of the others can be".
func exclusive(c *cobra.Command, one, other string) {
	c.MarkFlagsMutuallyExclusive(one, other) // completion, once one is there, offers the other no more
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if c.Flags().Changed(one) && c.Flags().Changed(other) {
			return flagError{fmt.Errorf("--%s and --%s exclude each other: give one of them; see %s --help", one, other, c.CommandPath())}
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// flagError is of a flag that there is not, or whose value cannot be.
type flagError struct{ error }

// heed is for what has to be brought to an end: the context ends at a signal, and a second one ends the program at once. Without it the first does.
func heed(ctx context.Context) context.Context {
	ctx, stop := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // nohup(1) has SIGHUP ignored, a shell SIGINT for what it runs in the background
			signal.Notify(signals, s)
		}
	}
	go func() {
		s := <-signals
		stop(fmt.Errorf("%w (signal: %v)", errInterrupted, s))
		time.Sleep(time.Second / 2) // timeout(1) sends twice, to its child and to its group: that is one signal
		signal.Stop(signals)
	}()
	return ctx
}

// heeding makes a command heed signals from the beginning.
func heeding(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		c.SetContext(heed(c.Context()))
		return run(c, args)
	}
	return c
}

// output ends with the first error of writing, so that commands need not look after every line.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	var n int
	n, o.err = o.to.Write(b)
	return n, o.err
}

// hinted adds to an error of the library what to write instead: it says how many arguments there should be, but not which.
func hinted(c *cobra.Command, args []string, err error) error {
	typed := c.Flags().Args()
	if !c.HasParent() { // it looks for the first command before it reads flags, and nothing else fails there
		typed = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	}
	if c.HasParent() && c.ValidateArgs(typed) == nil && c.ValidateRequiredFlags() == nil {
		return err
	}
	hint := "usage: " + c.UseLine()
	if c.HasAvailableSubCommands() {
		hint = "see " + c.CommandPath() + " --help"
		c.SuggestionsMinimumDistance = 2 // edits, the library's own for the commands of the root
		if len(typed) > 0 && typed[0] != "" {
			if like := c.SuggestionsFor(typed[0]); len(like) > 0 {
				begins := slices.IndexFunc(like, func(name string) bool { return strings.HasPrefix(name, typed[0]) })
				hint = fmt.Sprintf("did you mean %s %s?", c.CommandPath(), like[max(0, begins)])
			}
		}
	}
	return fmt.Errorf("%w; %s", err, hint)
}

// execute runs the command line and returns the exit status.
func execute(args []string) int {
	out := &output{to: os.Stdout}
	root := newRoot(out)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(context.Background())
	var flag flagError
	if err != nil && !errors.As(err, &flag) {
		err = hinted(c, args, err)
	}
	if out.err != nil && (err == nil || errors.Is(err, out.err)) {
		err = &exit{1, fmt.Errorf("write the output: %w", out.err)}
	}
	var e *exit
	switch {
	case err == nil:
		return lab.ExitOK
	case errors.As(err, &e):
		if e.err != nil {
			fmt.Fprintln(ownLog(), "plait:", e.err)
		}
		return e.status
	}
	fmt.Fprintln(os.Stderr, "plait:", err)
	return lab.ExitInput
}

func main() {
	switch {
	case os.Getpid() == 1 && os.Args[0] == "/init":
		agent.Main()
	case len(os.Args) == 2 && os.Args[1] == emu.Argument:
		os.Exit(emu.Main(os.Stdin, os.Stdout))
	case len(os.Args) > 1 && os.Args[1] == daemon.HelperArgument:
		os.Exit(daemon.Helper(ownLog(), os.Args[2:]))
	default:
		_ = os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true") // it goes to the log, amid the progress of a copy; the guide says it
		os.Exit(execute(os.Args[1:]))
	}
}

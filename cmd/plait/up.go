package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"plait.dev/plait/congestion"
	"plait.dev/plait/daemon"
)

// readyVariable names, for the process in the background, the file descriptor on which it says that it is ready.
const readyVariable = "PLAIT_READY_FD"

// readyFD is the first one after standard input, output and error.
const readyFD = 3

// upFlags are the flags of plait up.
type upFlags struct {
	config     string
	foreground bool
	overrides  daemon.Overrides
	signalLog  string
	log        string
}

func newUp() *cobra.Command {
	f := upFlags{config: daemon.DefaultConfigPath}
	c := &cobra.Command{
		Use:        "up",
		SuggestFor: []string{"start"},
		Short:      "Start choosing on this host: congestion controls, BGP exits, links for ACKs",
		Long: "Take the host's TCP connections and choose the congestion control of each while it runs. plait down undoes it, and so do\n" +
			"the connections by themselves when plait dies. A section egress of the configuration adds the BGP exits of a content server,\n" +
			"a section ackpath acknowledgements over the quicker of several links. SIGHUP makes it read its configuration again, as plait reload does.",
		Example: "  plait up --observe    change nothing, say what would be done\n  plait up\n  plait up --policy rtcp",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("policy") && f.overrides.Policy == "" {
				return fmt.Errorf("--policy names none: expected %s", strings.Join(congestion.Names(), ", "))
			}
			return f.up(c.Context(), c.OutOrStdout())
		},
	}
	flags := c.Flags()
	flags.Var((*fileFlag)(&f.config), "config", "read this configuration `file`; the default one need not exist")
	flags.BoolVar(&f.foreground, "foreground", false, "stay in the foreground and log to standard error")
	flags.BoolVar(&f.overrides.Observe, "observe", false, "leave the connections alone, and say what would be done")
	flags.StringVar(&f.overrides.Policy, "policy", "", "choose by this `policy` where no rule names one (default: as configured)")
	completeFlag(c, "policy", congestion.Names)
	flags.Var((*fileFlag)(&f.signalLog), "signal-log", "write every sample to this `file`, for plait replay")
	flags.StringVar(&f.log, "log", "/var/log/plait.log", "in the background, log to this `file`")
	return c
}

// up starts the daemon here or in the background, unless one is up.
func (f *upFlags) up(ctx context.Context, out io.Writer) error {
	c, err := daemon.ReadConfig(f.config)
	if err != nil {
		return err
	}
	if c, err = c.Override(f.overrides); err != nil {
		return err
	}
	if os.Getenv(readyVariable) != "" {
		return f.tell(heed(ctx), c)
	}
	client := daemon.Client(c.Control)
	switch s, err := client.Status(); {
	case err == nil:
		there := fmt.Sprintf("plait is up since %s, %s; plait reload%s reads a changed configuration, plait down%[3]s ends it",
			s.UpSince.Local().Format(time.DateTime), chosen(s), where(c.Control))
		if f.foreground { // who asked for a process that stays, such as systemd, would take its end for that of the one that is up
			return &exit{1, errors.New(there)}
		}
		fmt.Fprintln(out, there)
		return nil
	case !errors.Is(err, daemon.ErrNotRunning):
		return &exit{1, err}
	}
	ctx = heed(ctx)
	if f.foreground {
		return lastWord(os.Stderr, f.run(ctx, c, os.Stderr, notifySystemd))
	}
	switch err := f.background(ctx); {
	case errors.Is(err, errInterrupted):
		return &exit{130, err}
	case err != nil:
		return &exit{1, err}
	}
	s, err := client.Status()
	if err != nil {
		return &exit{1, fmt.Errorf("plait came up and ended again: %w; see %s", err, f.log)}
	}
	printUp(out, s, f.overrides.Observe, where(c.Control), f.log)
	return nil
}

// run is the daemon, in this process.
func (f *upFlags) run(ctx context.Context, c daemon.Config, log io.Writer, ready func()) error {
	o := daemon.Options{ConfigPath: f.config, Version: version, Log: log, Ready: ready, Hangups: hangups()}
	if f.signalLog != "" {
		file, err := os.OpenFile(f.signalLog, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // it says who talks to whom
		if err != nil {
			return fmt.Errorf("write signal log: %w", err)
		}
		defer file.Close()
		o.SignalLog = wholeLines{file}
	}
	err := daemon.Run(ctx, c, o)
	if errors.Is(err, context.Canceled) || errors.Is(err, errInterrupted) {
		return nil // a signal is the ordinary end of a daemon
	}
	return err
}

// wholeLines leaves no part of a line in a file, as where its disk is full: replay would end there, and what another plait appends would follow it on the line.
type wholeLines struct{ *os.File }

// samplePatience is how long the reader of a signal log that is a pipe may keep the daemon waiting, heartbeat and all: connections leave after 5 s of that.
const samplePatience = 2 * time.Second

func (w wholeLines) Write(line []byte) (int, error) {
	_ = w.SetWriteDeadline(time.Now().Add(samplePatience)) // a file has none
	n, err := w.File.Write(line)
	if err == nil || n == 0 {
		return n, err
	}
	if end, none := w.Seek(0, io.SeekEnd); none == nil { // a pipe has no end
		err = errors.Join(err, w.Truncate(end-int64(n)))
	}
	return 0, err
}

// hangups are what reloads a daemon by custom; to other commands it is the end of their terminal.
func hangups() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Reset(syscall.SIGHUP)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// tell is the daemon in the background: it says ok, or why not, to the process that started it.
func (f *upFlags) tell(ctx context.Context, c daemon.Config) error {
	pipe := os.NewFile(readyFD, "ready")
	told := false
	say := func(line string) {
		if !told {
			told = true
			fmt.Fprintln(pipe, line)
			pipe.Close()
		}
	}
	err := f.run(ctx, c, ownLog(), func() { say("ok") })
	if err != nil {
		say(err.Error())
	}
	return lastWord(ownLog(), err)
}

// lastWord says in the log why a daemon has ended, if it takes that: systemd starts plait again when its process is gone.
func lastWord(log io.Writer, err error) error {
	if err == nil {
		return nil
	}
	said := make(chan struct{})
	go func() {
		fmt.Fprintln(log, "plait:", err)
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
	return &exit{status: 1}
}

// background starts this program again in a session of its own and waits until it is ready.
func (f *upFlags) background(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program to start it in the background: %w", err)
	}
	log, err := os.OpenFile(f.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("write the log: %w; %sname another file with --log", err, daemon.AsRoot(err))
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	args, err := f.arguments()
	if err != nil {
		return err
	}
	c := exec.Command(self, args...)
	c.Args[0] = os.Args[0]
	c.Env = append(os.Environ(), fmt.Sprint(readyVariable, "=", readyFD))
	c.Dir = "/" // keep no file system busy
	c.Stderr = log
	c.ExtraFiles = []*os.File{w}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = c.Start()
	w.Close() // or the daemon's death would not be seen
	if err != nil {
		return fmt.Errorf("start plait in the background: %w", err)
	}
	defer context.AfterFunc(ctx, func() { r.Close() })() // ends the reading
	said, err := io.ReadAll(r)
	if ctx.Err() != nil {
		return errors.Join(fmt.Errorf("wait until plait is up in the background: %w; process %d is told to end, and takes back what it has done; see %s",
			context.Cause(ctx), c.Process.Pid, f.log), c.Process.Signal(syscall.SIGTERM))
	}
	if err != nil {
		return err
	}
	switch text := string(bytes.TrimSpace(said)); text {
	case "ok":
		return nil
	case "":
		return fmt.Errorf("start plait in the background: it ended without a word; see %s", f.log)
	default:
		return errors.New(text)
	}
}

// arguments of the process in the background; its directory is another, so paths are absolute.
func (f *upFlags) arguments() ([]string, error) {
	args := []string{"up", "--foreground"}
	for _, file := range []struct{ flag, path string }{{"--config", f.config}, {"--signal-log", f.signalLog}} {
		if file.path == "" {
			continue
		}
		absolute, err := filepath.Abs(file.path)
		if err != nil {
			return nil, err
		}
		args = append(args, file.flag, absolute)
	}
	if f.overrides.Observe {
		args = append(args, "--observe")
	}
	if f.overrides.Policy != "" {
		args = append(args, "--policy", f.overrides.Policy)
	}
	return args, nil
}

// notifySystemd says that plait is up (sd_notify(3)), if it was started by systemd.
func notifySystemd() {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return
	}
	if abstract, ok := strings.CutPrefix(address, "@"); ok {
		address = "\x00" + abstract
	}
	c, err := net.Dial("unixgram", address)
	if err == nil {
		_, err = c.Write([]byte("READY=1"))
		c.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plait: tell systemd that plait is up:", err)
	}
}

// where is what other commands must be told to ask a plait with this control socket.
func where(control string) string {
	if control == new(controlFlags).client().Path() {
		return ""
	}
	return " --control " + control
}

// printUp says what has been done. observe is whether the command line keeps rules from acting, too.
func printUp(out io.Writer, s daemon.Status, observe bool, where, log string) {
	does := map[daemon.Mode]string{
		daemon.On:      fmt.Sprintf("connections of %s: policy %s, %g %% held out for comparison", s.Cgroup, s.Policy, s.HoldoutPercent),
		daemon.Observe: fmt.Sprintf("connections of %s are observed, policy %s; nothing is changed", s.Cgroup, s.Policy),
		daemon.Off:     "congestion off: no congestion control is chosen",
	}
	rules := s.Rules > 0 && !observe
	if rules {
		does[daemon.Off] += " but by rules"
		does[daemon.Observe] += " but by rules"
	}
	fmt.Fprintf(out, "plait %s is up (process %d)\n", s.Version, s.PID)
	fmt.Fprintf(out, "  %s\n", does[s.Mode])
	if s.Mode == daemon.On || rules { // else none has left it
		fmt.Fprintf(out, "  they return to %s with plait down%s, or by themselves if plait dies\n", s.Default, where)
	}
	if s.Egress != nil {
		fmt.Fprintln(out, " ", exits(s.Egress))
	}
	if s.Ackpath != nil {
		fmt.Fprintln(out, " ", copies(s.Ackpath))
	}
	for _, w := range s.Warnings {
		fmt.Fprintln(out, "  warning:", w)
	}
	fmt.Fprintf(out, "  see plait status%s and %s\n", where, log)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/congestion"
	"plait.dev/plait/daemon"
	"plait.dev/plait/signals"
)

// standIn answers on a control socket as a daemon would, without a kernel half.
type standIn struct{ stop context.CancelFunc }

func (d standIn) Status() daemon.Status {
	group := func(connections, bursts uint64) daemon.Group {
		counts := make([]uint64, 96)
		counts[40] = bursts
		return daemon.NewGroup(daemon.Histogram{Connections: connections, Counts: counts}, 64000*bursts)
	}
	return daemon.Status{
		Version: "1.2.3", PID: os.Getpid(), UpSince: time.Now().Add(-90 * time.Second), Mode: daemon.On, Policy: "rtcp", HoldoutPercent: 5,
		Default: "cubic", Cgroup: "/sys/fs/cgroup", Linked: true, Tracing: "on",
		Counters: map[string]uint64{"attached": 190, "held_out": 10, "switches": 7},
		Prefixes: []daemon.PrefixStatus{{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Policy: "rtcp", Rule: "port 443", Managed: group(190, 1900), Holdout: group(10, 100),
			Difference: daemon.Comparison{Ratio: 0.5, Low: 0.4, High: 0.6, Verdict: daemon.Better}}},
		Sockets: []daemon.SocketStatus{
			{Cookie: 0x1a, Local: netip.MustParseAddrPort("192.0.2.1:443"), Remote: netip.MustParseAddrPort("198.51.100.7:50000"), Policy: "rtcp", Rule: "port 443",
				Algorithm: "cubic", Wanted: "hybla", Because: "hybla scores less",
				Scores: []congestion.Score{{Algorithm: signals.Hybla, LatencyMs: 30, LossMs: 10, BottleneckMs: 20}},
				Total:  daemon.Segments{Delivered: 1000, LostSingle: 12, LostBurst: 5},
				Last:   signals.Sample{SRTTUs: 40000, MinRTTUs: 35000, RateBps: 2500000, CwndSegments: 10, MSS: 1448, IntervalUs: 200000, Delivered: 50, LostSingle: 1, BurstLatencyUs: 42000, DispersionBps: 9800000},
				AtLoss: &daemon.AtLoss{RTTUs: 61000, MinRTTUs: 36000}},
		},
		Egress:   &daemon.EgressSummary{Mode: daemon.Observe, Exits: 3, Sessions: 2, Up: 1, Routes: 1200},
		Warnings: []string{"something is odd"},
	}
}
func (d standIn) Why(socket string) (daemon.SocketStatus, error) {
	return d.Status().FindSocket(socket)
}
func (d standIn) Reload() error {
	if _, err := os.Stat("mistake"); err == nil {
		return errors.New("plait.yaml:1:1: colour: unknown key: expected cgroup, control, metrics or congestion")
	}
	return nil
}
func (d standIn) Stop() { d.stop() }

// standInMain serves at the path that is its argument until plait down or the end of the test.
func standInMain() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) > 2 { // says nothing
		if _, err := net.Listen("unix", os.Args[1]); err == nil {
			<-ctx.Done()
		}
		return
	}
	if err := daemon.Serve(ctx, os.Args[1], standIn{stop}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// systemd is told once, on the socket it names.
func TestNotifySystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	notifySystemd()
	said := make([]byte, 100)
	if n, err := l.Read(said); err != nil || string(said[:n]) != "READY=1" {
		t.Errorf("got %q, %v, want READY=1", said[:n], err)
	}
}

// After these results systemd starts plait again (Restart=on-failure); after a stop it does not, however long that took.
func TestStartsAgain(t *testing.T) {
	for result, want := range map[string]bool{"": false, "success": false, "timeout": false, "signal": true, "core-dump": true, "exit-code": true, "watchdog": true} {
		if got := startsAgain(result); got != want {
			t.Errorf("%q: %v, want %v", result, got, want)
		}
	}
}

// In the daemon a hangup is no end.
func TestHangups(t *testing.T) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGHUP)
	c := hangups()
	defer signal.Reset(syscall.SIGHUP)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	<-c
	if len(ended) > 0 {
		t.Error("it is told to what ends a command, too")
	}
}

// A picture of plait top fits the terminal, whatever there is to say.
func TestDraw(t *testing.T) {
	s := standIn{}.Status()
	picture := draw(view{Status: s}, false, s.UpSince.Add(90*time.Second), 40, 5)
	want := home + strings.Join([]string{
		"plait 1.2.3, up for 1m30s, mode on, poli",
		"connections: 1 heard of and open; since ",
		"BGP exits: mode observe, 3 exits, 1 of 2",
		"warning: something is odd",
		"q: quit  e: BGP exits",
	}, clearLine+"\r\n") + clearLine + clearBelow
	if picture != want {
		t.Errorf("got  %q\nwant %q", picture, want)
	}
}

// With the lever congestion off nothing says that plait as a whole is, nor of a policy.
func TestPrintStatusOff(t *testing.T) {
	for rules, want := range map[int]string{0: "plait 1.2.3, up for 1m30s, congestion off\n", 2: "plait 1.2.3, up for 1m30s, congestion off, 5 % held out, rules: 2\n", 1: "plait 1.2.3, up for 1m30s, congestion off, 5 % held out, rules: 1\n"} {
		var out strings.Builder
		s := standIn{}.Status()
		s.Mode, s.Rules = daemon.Off, rules
		if printStatus(&out, s, s.UpSince.Add(90*time.Second), 1, 1); !strings.HasPrefix(out.String(), want) {
			t.Errorf("got\n%swant %q first", &out, want)
		}
	}
}

// A group without bursts has no latency: 0.0 would be the quickest one.
func TestPrintNoBursts(t *testing.T) {
	var out strings.Builder
	s := standIn{}.Status()
	held := &s.Prefixes[0]
	held.Holdout, held.Difference = daemon.Group{}, daemon.Comparison{}
	printPrefixes(&out, s, 1)
	k, err := s.FindSocket("sk:1a")
	if err != nil {
		t.Fatal(err)
	}
	printEvidence(&out, k)
	for _, want := range []string{"  73.0 / -  ", "198.51.100.0/24: bursts take 73.0 ms, held out - ms; ratio nothing to compare yet\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%swant %q in it", &out, want)
		}
	}
	if strings.Contains(out.String(), "/ 0.0") {
		t.Errorf("none are told as 0.0:\n%s", &out)
	}
}

// The rate of observed connections is not measured: 0.0 would be one that stands still.
func TestPrintNoRate(t *testing.T) {
	for bps, want := range map[uint64][]string{0: {"  42.0 / 73.0  -            10  ", "; rate -; window 10 segments"}, 2500000: {"  42.0 / 73.0  2.5          10  ", "; rate 2.50 Mbit/s; window 10 segments"}} {
		var out strings.Builder
		s := standIn{}.Status()
		s.Sockets[0].Last.RateBps = bps
		printSockets(&out, s, 1)
		printWhy(&out, s.Sockets[0])
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%d bit/s: got\n%swant %q in it", bps, &out, w)
			}
		}
	}
}

// There is no interval where a few connections have nearly all bursts, however many there are.
func TestRatioWithoutInterval(t *testing.T) {
	p := standIn{}.Status().Prefixes[0]
	p.Difference.Low, p.Difference.High, p.Difference.Verdict = 0, 0, daemon.Unclear
	if got, want := ratio(p), "0.50, too little to tell"; got != want {
		t.Errorf("%d and %d connections: got %s, want %s", p.Managed.Connections, p.Holdout.Connections, got, want)
	}
}

// What is printed as the next step reaches this plait.
func TestPrintUp(t *testing.T) {
	for control, want := range map[string]string{new(controlFlags).client().Path(): "", "/run/other": " --control /run/other"} {
		var out strings.Builder
		printUp(&out, standIn{}.Status(), false, where(control), "/log")
		for _, line := range []string{"with plait down" + want + ", or by", "see plait status" + want + " and /log\n"} {
			if !strings.Contains(out.String(), line) {
				t.Errorf("%s: got\n%swant %q in it", control, &out, line)
			}
		}
	}
	for _, mode := range []daemon.Mode{daemon.Off, daemon.Observe} {
		var out strings.Builder
		s := standIn{}.Status()
		s.Mode = mode
		if printUp(&out, s, false, "", "/log"); strings.Contains(out.String(), "return to") {
			t.Errorf("mode %s: connections that nobody has taken return: got\n%s", mode, &out)
		}
	}
}

// Rules act where all else is only observed, unless the command line says that nothing may.
func TestPrintUpObserve(t *testing.T) {
	for observe, want := range map[bool]string{
		false: "are observed, policy rtcp; nothing is changed but by rules\n  they return to cubic with plait down",
		true:  "are observed, policy rtcp; nothing is changed\n  BGP exits",
	} {
		var out strings.Builder
		s := standIn{}.Status()
		s.Mode, s.Rules = daemon.Observe, 1
		if printUp(&out, s, observe, "", "/log"); !strings.Contains(out.String(), want) {
			t.Errorf("--observe %v: got\n%swant %q in it", observe, &out, want)
		}
	}
}

// Status 2 is for what the caller has got wrong alone.
func TestUnanswered(t *testing.T) {
	for err, want := range map[error]int{daemon.ErrNotRunning: exitNotUp, daemon.ErrNoAnswer: 1, daemon.ErrFailed: 1, fs.ErrPermission: 1} {
		var e *exit
		if !errors.As(unanswered(fmt.Errorf("ask: %w", err)), &e) || e.status != want {
			t.Errorf("%v: got %+v, want status %d", err, e, want)
		}
	}
	if errors.As(unanswered(errors.New("plait.yaml:1:1: colour: unknown key")), new(*exit)) {
		t.Error("what the daemon refuses has a status of its own, and is not bad input")
	}
}

// The process in the background is in another directory and must mean the same files.
func TestArguments(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	f := upFlags{config: "plait.yaml", overrides: daemon.Overrides{Observe: true, Policy: "rtcp"}}
	args, err := f.arguments()
	want := "up --foreground --config " + dir + "/plait.yaml --observe --policy rtcp"
	if err != nil || strings.Join(args, " ") != want {
		t.Errorf("got  %v, %v\nwant %s", args, err, want)
	}
}

// What is lost is a share of what was sent: all of it at the most, as on a path that has died, where nothing is delivered.
func TestLosses(t *testing.T) {
	for n, want := range map[daemon.Segments]string{
		{}:                              "0.00 / 0.00",
		{Delivered: 95, LostSingle: 5}:  "5.00 / 0.00",
		{LostSingle: 1, LostBurst: 3}:   "25.00 / 75.00",
		{Delivered: 50, LostBurst: 150}: "0.00 / 75.00",
	} {
		if got := losses(n); got != want {
			t.Errorf("%+v: %s, want %s", n, got, want)
		}
	}
}

// Where the configuration cannot be read, and may name another control socket, nobody is told only that plait is not up.
func TestNotUpAsFarAsKnown(t *testing.T) {
	notUp := fmt.Errorf("ask for status on x: %w", daemon.ErrNotRunning)
	f := controlFlags{unread: errors.New("/etc/plait/plait.yaml:3:1: found a tab\nand more")}
	err := f.unanswered(notUp)
	if !errors.Is(err, daemon.ErrNotRunning) || !strings.Contains(err.Error(), "found a tab): ") || !strings.Contains(err.Error(), "--control") {
		t.Error(err)
	}
	if err := (&controlFlags{}).unanswered(notUp); err.Error() != notUp.Error() {
		t.Error(err)
	}
	if err := f.unanswered(daemon.ErrFailed); strings.Contains(err.Error(), "--control") {
		t.Error(err)
	}
}

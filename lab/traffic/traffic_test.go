package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// world is two namespaces joined by a veth link.
func world(t *testing.T) Ends {
	t.Helper()
	rung.Netns(t)
	from, to := fmt.Sprintf("plait-test-%d-s", os.Getpid()), fmt.Sprintf("plait-test-%d-r", os.Getpid())
	ip := func(stdin string, args ...string) {
		t.Helper()
		command := exec.Command("ip", args...)
		command.Stdin = strings.NewReader(stdin)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
	}
	for _, ns := range []string{from, to} {
		ip("", "netns", "add", ns)
		t.Cleanup(func() { ip("", "netns", "del", ns) })
	}
	ip("", "-n", from, "link", "add", "net0", "type", "veth", "peer", "name", "net0", "netns", to)
	for i, ns := range []string{from, to} {
		// Neighbours are given because discovery on a link that just came up may take a second.
		ip(fmt.Sprintf(`addr add 10.9.0.%[1]d/24 dev net0
addr add 2001:db8:9::%[1]d/64 dev net0 nodad
addr add 2001:db8:9::1%[1]d/64 dev net0 nodad
link set net0 address 02:00:00:00:00:0%[1]d up
link set lo up
neigh add 10.9.0.%[2]d lladdr 02:00:00:00:00:0%[2]d dev net0
neigh add 2001:db8:9::%[2]d lladdr 02:00:00:00:00:0%[2]d dev net0
neigh add 2001:db8:9::1%[2]d lladdr 02:00:00:00:00:0%[2]d dev net0
`, i+1, 2-i), "-n", ns, "-batch", "-")
	}
	for _, ns := range []string{from, to} { // a link drops what is sent before the kernel has noticed its carrier
		for up, try := false, 0; !up; try++ {
			state, err := exec.Command("ip", "-n", ns, "-br", "link", "show", "net0").Output()
			if err != nil || try == 1000 {
				t.Fatalf("link in %s does not come up: %v %s", ns, err, state)
			}
			up = strings.Contains(string(state), " UP ")
		}
	}
	return Ends{FromNS: from, ToNS: to, From: netip.MustParseAddr("2001:db8:9::1"), Port: 5001}
}

func start(t *testing.T, a *experiment.App, e Ends) (*Outcome, error) {
	t.Helper()
	return Run(t.Context(), a, e, Clock{Origin: time.Now(), Every: tick, Seed: 1})
}

func must(t *testing.T, a *experiment.App, e Ends) *Outcome {
	t.Helper()
	out, err := start(t, a, e)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// untilStop runs an application that its stop ends. On a busy machine it may hardly have begun by then: if it has not done enough, it has a later one.
func untilStop(t *testing.T, a *experiment.App, e Ends, enough func(*Outcome) bool) *Outcome {
	t.Helper()
	out := must(t, a, e)
	if !enough(out) {
		a.StopS += 10
		out = must(t, a, e)
		delete(out.Metrics, "min_second_mbps") // which one of less than a second has not
	}
	return out
}

// has checks that the metrics are exactly these.
func has(t *testing.T, out *Outcome, names string) {
	t.Helper()
	var got []string
	for name := range out.Metrics {
		got = append(got, name)
	}
	want := strings.Fields(names)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("metrics\n%v, want\n%v", got, want)
	}
}

// volume is what a goodput series adds up to, in bytes.
func volume(s result.Series) float64 {
	sum := 0.0
	for _, v := range s.Values {
		sum += v * s.StepS * 1e6 / 8
	}
	return sum
}

func TestDownload(t *testing.T) {
	e := world(t)
	four := e
	four.From, four.To = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	bound := e
	bound.To = netip.MustParseAddr("2001:db8:9::12")
	for name, test := range map[string]struct {
		app  experiment.App
		ends Ends
	}{
		"tcp":         {experiment.App{Congestion: "reno"}, e},
		"mptcp":       {experiment.App{Protocol: "mptcp", Congestion: "reno"}, bound},
		"ipv4":        {experiment.App{}, four},
		"connections": {experiment.App{Connections: 3}, e},
		"curl":        {experiment.App{Client: "curl", Connections: 2}, bound},
	} {
		t.Run(name, func(t *testing.T) {
			a := test.app
			a.Type, a.Bytes, a.TimeoutS = "download", 3_000_001, 20
			out := must(t, &a, test.ends)
			has(t, out, "bytes goodput_mbps longest_silence_ms start_s completion_s connect_ms first_byte_ms")
			if out.Metrics["bytes"] != 3_000_001 {
				t.Errorf("%g bytes", out.Metrics["bytes"])
			}
			if got := volume(out.Series[0]); got < 3_000_000 || got > 3_000_002 {
				t.Errorf("the series adds up to %g bytes", got)
			}
		})
	}
}

func TestDownloadUntilStop(t *testing.T) {
	e := world(t)
	for _, client := range []string{"go", "curl"} {
		a := &experiment.App{Type: "download", Client: client, StopS: 0.35}
		out := untilStop(t, a, e, func(out *Outcome) bool { return out.Metrics["bytes"] > 0 })
		has(t, out, map[string]string{
			"go":   "bytes goodput_mbps longest_silence_ms start_s connect_ms first_byte_ms",
			"curl": "bytes goodput_mbps longest_silence_ms start_s first_byte_ms",
		}[client])
		first := int(out.Metrics["start_s"] * 10) // of the intervals of 0.1 s
		if n, want := len(out.Series[0].Values), int(a.StopS*10)+1-first; n != want || out.Metrics["bytes"] == 0 {
			t.Errorf("%s: %d values from %g s until %g s, want %d; %g bytes", client, n, out.Metrics["start_s"], a.StopS, want, out.Metrics["bytes"])
		}
	}
}

func TestStream(t *testing.T) {
	e := world(t)
	for _, protocol := range []string{"tcp", "mptcp"} {
		// 8 Mbit/s for half a second are 500 kB; the last chunk or two may be on the way at the end.
		a := &experiment.App{Type: "stream", Protocol: protocol, RateMbps: 8, StopS: 0.5}
		least := func() float64 { return 0.6e6 * a.StopS }
		out := untilStop(t, a, e, func(out *Outcome) bool { return out.Metrics["bytes"] >= least() })
		has(t, out, "bytes goodput_mbps longest_silence_ms start_s completion_s connect_ms delay_p50_ms delay_p95_ms delay_p99_ms delay_max_ms")
		if got, most := out.Metrics["bytes"], a.StopS*1e6; got > most || got < least() {
			t.Errorf("%s: %g bytes, want %g to %g", protocol, got, least(), most)
		}
		if n := float64(len(out.Samples[0].Values)); n != float64(int(out.Metrics["bytes"])/10_000) {
			t.Errorf("%s: %g delays for %g bytes in chunks of 10000", protocol, n, out.Metrics["bytes"])
		}
	}
}

const burstMetrics = "bytes goodput_mbps longest_silence_ms start_s completion_s connect_ms count within_1s_percent " +
	"mean_ms sd_ms p50_ms p95_ms p99_ms max_ms first_last_mean_ms first_last_sd_ms first_last_p95_ms"

func TestBursts(t *testing.T) {
	e := world(t)
	for name, a := range map[string]experiment.App{
		"closed": {GapMs: 20},
		"open":   {GapMs: 20, OpenLoop: true},
		"mptcp":  {GapMs: 20, Protocol: "mptcp"},
		"no gap": {},
	} {
		t.Run(name, func(t *testing.T) {
			a.Type, a.Bytes, a.Count, a.Warmup, a.TimeoutS = "bursts", 65536, 10, 2, 20
			out := must(t, &a, e)
			has(t, out, burstMetrics)
			if out.Metrics["count"] != 8 || out.Metrics["bytes"] != 655360 || len(out.Samples[1].Values) != 8 {
				t.Errorf("%g bursts, %g bytes, %d latencies", out.Metrics["count"], out.Metrics["bytes"], len(out.Samples[1].Values))
			}
			if took := out.Metrics["completion_s"]; took < 9*a.GapMs/1000 {
				t.Errorf("10 bursts %g ms apart took %g s", a.GapMs, took)
			}
		})
	}
}

func TestBurstsUntilStop(t *testing.T) {
	a := &experiment.App{Type: "bursts", Bytes: 1000, GapMs: 100, Count: 1000, StopS: 0.35}
	out := untilStop(t, a, world(t), func(out *Outcome) bool { return out.Metrics["count"] >= a.StopS*5 })
	if got := out.Metrics["count"]; got < a.StopS*5 || got > a.StopS*10+1 {
		t.Errorf("%g bursts in %g s, 0.1 s apart", got, a.StopS)
	}
}

func TestPing(t *testing.T) {
	e := world(t)
	for _, pair := range [][2]string{{"10.9.0.1", "10.9.0.2"}, {"2001:db8:9::1", "2001:db8:9::2"}} {
		e.From, e.To = netip.MustParseAddr(pair[0]), netip.MustParseAddr(pair[1])
		out := must(t, &experiment.App{Type: "ping", GapMs: 10, Count: 5, TimeoutS: 20}, e)
		has(t, out, "count start_s lost_percent mean_ms sd_ms min_ms p50_ms p95_ms p99_ms max_ms")
		if out.Metrics["count"] != 5 || out.Metrics["lost_percent"] != 0 {
			t.Errorf("%s: %g asked, %g %% lost", pair[1], out.Metrics["count"], out.Metrics["lost_percent"])
		}
	}
	e.To = netip.MustParseAddr("2001:db8:77::1") // no route
	out := must(t, &experiment.App{Type: "ping", GapMs: 10, Count: 2}, e)
	has(t, out, "count start_s lost_percent")
	if out.Metrics["lost_percent"] != 100 {
		t.Errorf("%g %% lost without a route", out.Metrics["lost_percent"])
	}
}

func TestCommand(t *testing.T) {
	e := world(t)
	a := &experiment.App{
		Type:          "command",
		ServerCommand: `cd $(mktemp -d) && echo "answer: 42" > f && python3 -m http.server --bind $FROM $PORT 2>/dev/null; :`,
		ClientCommand: `curl -gsS "http://[$FROM]:$PORT/f"`,
		Results:       map[string]string{"answer": `answer: (\d+)`},
		TimeoutS:      20,
	}
	out := must(t, a, e)
	has(t, out, "start_s completion_s answer")
	if out.Metrics["answer"] != 42 {
		t.Errorf("answer %g", out.Metrics["answer"])
	}
	left := []byte("?")
	for try := 0; len(left) > 0 && try < 200; try++ { // a killed process takes a moment to die
		left, _ = exec.Command("ip", "netns", "pids", e.FromNS).Output()
	}
	if len(left) > 0 {
		t.Errorf("processes left at the server: %s", left)
	}
}

func TestCommandUntilStop(t *testing.T) {
	e := world(t)
	a := &experiment.App{Type: "command", ClientCommand: "echo seen 1; sleep 100", StopS: 0.3,
		Results: map[string]string{"seen": `seen (\d+)`, "never": `never (\d+)`}}
	has(t, untilStop(t, a, e, func(out *Outcome) bool { return out.Metrics["seen"] > 0 }), "start_s seen")
}

func TestRunErrors(t *testing.T) {
	e := world(t)
	absent := e
	absent.From = netip.MustParseAddr("2001:db8:9::99")
	lost := e
	lost.ToNS = "plait-test-none"
	for name, test := range map[string]struct {
		app  experiment.App
		ends Ends
		want []string
	}{
		"congestion":  {experiment.App{Type: "stream", RateMbps: 1, Congestion: "none-such"}, e, []string{"none-such", "no such file", "available: ", "cubic", "port 5001", e.FromNS}},
		"address":     {experiment.App{Type: "stream", RateMbps: 1}, absent, []string{"listen on 2001:db8:9::99 port 5001 at " + e.FromNS, "cannot assign"}},
		"namespace":   {experiment.App{Type: "bursts", Bytes: 1, Count: 1}, lost, []string{"open network namespace plait-test-none"}},
		"timeout":     {experiment.App{Type: "stream", RateMbps: 1, TimeoutS: 0.2}, e, []string{"not done 0.2 s after"}},
		"client":      {experiment.App{Type: "command", ClientCommand: "echo why >&2; exit 3"}, e, []string{"exit status 3", "why", e.ToNS}},
		"server":      {experiment.App{Type: "command", ServerCommand: "echo why >&2; exit 3", ClientCommand: "true"}, e, []string{"ended before", "exit status 3", "why"}},
		"result":      {experiment.App{Type: "command", ClientCommand: "echo 1", Results: map[string]string{"x": "a(.)"}}, e, []string{"read result x", "2 bytes"}},
		"curl":        {experiment.App{Type: "download", Bytes: 1, Client: "curl", Protocol: "sctp"}, e, []string{"curl does not speak SCTP"}},
		"unknown":     {experiment.App{Type: "telnet"}, e, []string{`unknown type "telnet"`}},
		"ping nobody": {experiment.App{Type: "ping", GapMs: 1}, e, []string{"receiver's address"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := start(t, &test.app, test.ends)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestConnectRefused(t *testing.T) {
	r := &run{app: &experiment.App{}, ends: world(t), clock: Clock{Origin: time.Now()}}
	_, _, err := r.dial(context.Background())
	want := "connect 2001:db8:9::1 port 5001 from " + r.ends.ToNS + ": connection refused"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestJitterIsDrawnFromTheSeed(t *testing.T) {
	a := &experiment.App{JitterMs: 100}
	drawn := jitter(a, 5001, 1)
	if again := jitter(a, 5001, 1); again != drawn {
		t.Errorf("the same seed draws %v, then %v", drawn, again)
	}
	if jitter(a, 5001, 2) == drawn || jitter(a, 5002, 1) == drawn {
		t.Error("another seed or application draws the same")
	}
	// The mean of n uniform draws from 0 to 100 ms is 50, with standard deviation 100/sqrt(12 n).
	const n = 1200
	sum := 0.0
	for seed := range uint64(n) {
		sum += ms(jitter(a, 5001, seed))
	}
	if got := sum / n; got < 50-3*100.0/120 || got > 50+3*100.0/120 {
		t.Errorf("mean %g ms, want 50 within 3 sigma", got)
	}
}

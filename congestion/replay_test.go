package congestion

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"plait.dev/plait/signals"
)

// counter is a policy that says how many samples it was given.
type counter struct{ n int }

func (c *counter) Choose(s signals.Sample) Choice {
	c.n++
	return Choice{Algorithm: s.Algorithm, Because: known(fmt.Sprint(c.n))}
}

func (c *counter) End() {}

func newCounter() Policy { return new(counter) }

func counters() (func() Policy, error) { return newCounter, nil }

func TestReplay(t *testing.T) {
	log := `{"cookie":7,"at_us":100,"algorithm":"bbr"}

{"cookie":8,"at_us":50}
{"cookie":7,"at_us":100,"interval_us":1,"algorithm":"cubic"}
 {"cookie":18446744073709551615,"at_us":1}
{"cookie":7,"at_us":300,"interval_us":200}`
	var got []string
	err := Replay(strings.NewReader(log), counters, func(s signals.Sample, c Choice, _ bool) {
		got = append(got, fmt.Sprintf("%d at %d: %s %s", s.Cookie, s.AtUs, c.Algorithm, c.Because))
	})
	want := []string{"7 at 100: bbr 1", "8 at 50: reno 1", "7 at 100: cubic 2", "18446744073709551615 at 1: reno 1", "7 at 300: reno 3"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got  %q, %v\nwant %q", got, err, want)
	}
}

// A log is appended to: after a new start of the host, clock and cookies are as if nothing had been. And the daemon forgets.
func TestReplayBeginsAnew(t *testing.T) {
	log := `{"cookie":7,"at_us":900000000,"interval_us":200000}
{"cookie":7,"at_us":1500000000,"interval_us":600000000}
{"cookie":7,"at_us":2100000001,"interval_us":600000001}
{"cookie":7,"at_us":2100200001,"interval_us":200000}
{"cookie":7,"at_us":5000000}
{"cookie":7,"at_us":5200000,"interval_us":200000}`
	var got []string
	err := Replay(strings.NewReader(log), counters, func(_ signals.Sample, c Choice, _ bool) { got = append(got, c.Because.String()) })
	if want := []string{"1", "2", "1", "2", "1", "2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	log = `{"cookie":7,"at_us":900000000}` + "\n" + `{"cookie":7,"at_us":800000000,"interval_us":200000}`
	if err := Replay(strings.NewReader(log), counters, func(signals.Sample, Choice, bool) {}); err == nil {
		t.Error("the clock goes back within a socket: no error")
	}
}

// The daemon begins a policy with a connection's first sample, and gives it no last one: after a new start of plait cookies are used again, those of its own for
// other connections, and who has left and come back is a new one to it.
func TestReplayAsLive(t *testing.T) {
	log := `{"cookie":9223372036854775808,"at_us":1000000}
{"cookie":9223372036854775808,"at_us":1200000,"interval_us":200000}
{"cookie":9223372036854775808,"at_us":9000000}
{"cookie":9223372036854775808,"at_us":9200000,"interval_us":200000}
{"cookie":9223372036854775808,"at_us":9300000,"interval_us":100000,"closed":true}
{"cookie":9223372036854775808,"at_us":9400000,"interval_us":100000}`
	var got []string
	err := Replay(strings.NewReader(log), counters, func(_ signals.Sample, c Choice, _ bool) { got = append(got, c.Because.String()) })
	if want := []string{"1", "2", "1", "2", "1"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestReplayMistakes(t *testing.T) {
	good := `{"cookie":7,"at_us":100}` + "\n"
	for _, c := range []struct {
		log  io.Reader
		want string
	}{
		{strings.NewReader(good + `{"cookie":7,"at_us":99,"interval_us":1}`), "2: at_us 99 is before 100, the previous sample of cookie 7"},
		{strings.NewReader(good + "\n" + `{"cookie":`), "3: read sample: unexpected EOF"},
		{strings.NewReader(good + `{"rtt_us":1}`), `2: read sample: json: unknown field "rtt_us"`},
		{strings.NewReader(good + `{}`), "2: read sample: there is none on the line, for it has no cookie"},
		{strings.NewReader(`null`), "1: read sample: there is none on the line"},
		{strings.NewReader(`{} {}`), "1: read sample: something follows it on the line"},
		{strings.NewReader(`{"algorithm":"x"}`), `1: read sample: unknown congestion control "x"; there are reno, `},
		{strings.NewReader(`{"srtt_us":-1}`), "1: read sample: json: cannot unmarshal number -1 into "},
		{strings.NewReader(good + strings.Repeat(" ", maxLine)), "2: read sample: the line has more than 262144 bytes"},
		{io.MultiReader(strings.NewReader(good), iotest.ErrReader(io.ErrClosedPipe)), "2: io: read/write on closed pipe"},
		{io.MultiReader(strings.NewReader(good+`{"cookie":`), iotest.ErrReader(io.ErrClosedPipe)), "2: io: read/write on closed pipe"},
	} {
		err := Replay(c.log, counters, func(signals.Sample, Choice, bool) {})
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// Whatever is read: no panic, and a policy that compares finds a candidate.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"cookie":7,"at_us":200000,"interval_us":200000,"srtt_us":1,"lost_burst_segments":4294967295}`))
	f.Add([]byte("{\"cookie\":1,\"at_us\":18446744073709551615,\"srtt_us\":1}\n\n{"))
	rtcp := func() (func() Policy, error) { return New("rtcp") }
	f.Fuzz(func(t *testing.T, log []byte) {
		_ = Replay(strings.NewReader(string(log)), rtcp, func(s signals.Sample, c Choice, _ bool) {
			if len(c.Scores) > 0 && !slices.ContainsFunc(c.Scores, func(s Score) bool { return s.Algorithm == c.Algorithm }) {
				t.Errorf("%+v: chose %+v", s, c)
			}
		})
	})
}

// Sockets that have ended are others no more, and remembered: those whose end is on record, those that were silent for as long as the daemon remembers, and, which is not remembered, all from before the host was started anew, or plait was.
func TestReplayEnds(t *testing.T) {
	lossy := func(cookie, atS uint64) string {
		return fmt.Sprintf(`{"cookie":%d,"path":7,"at_us":%d,"interval_us":1,"delivered_segments":98,"lost_single_segments":2,"min_rtt_us":100000,"rtt_at_loss_us":100000}`+"\n", cookie, atS*1e6)
	}
	begins := func(cookie, atS uint64) string {
		return fmt.Sprintf(`{"cookie":%d,"path":7,"at_us":%d,"min_rtt_us":100000}`+"\n", cookie, atS*1e6)
	}
	anew := func(sample string) string { return strings.Replace(sample, "}", `,"anew":true}`, 1) }
	four := lossy(1, 5000) + lossy(1, 5001) + lossy(1, 5002) + lossy(1, 5003)
	const beside, ended = "others between the same addresses (1)", "a connection between the same addresses that has ended"
	for name, c := range map[string]struct{ log, want string }{ // in the last choice's reason
		"beside it":                  {four + begins(2, 5004), beside},
		"after its end":              {four + `{"cookie":1,"at_us":5004000000,"interval_us":1,"closed":true}` + "\n" + begins(2, 5005), ended},
		"before it is forgotten":     {four + begins(2, 5600), beside},
		"when it is forgotten":       {four + begins(2, 5604), "0.0 were without a full queue and 0.0 with one"},
		"when another has its place": {four + begins(1, 5004) + begins(2, 5005), ended},
		"in another plait":           {four + anew(begins(2, 5004)), "0.0 were without a full queue and 0.0 with one"},
		"in another plait, silent":   {four + anew(begins(1, 5004)), "0.0 were without a full queue and 0.0 with one"},
		"itself in another plait":    {four + anew(lossy(1, 5004)), "1.0 were without a full queue and 0.0 with one"},
		"on a host started anew":     {four + begins(2, 100), "0.0 were without a full queue and 0.0 with one"},
	} {
		got := Choice{}
		if err := Replay(strings.NewReader(c.log), policies()["plait"], func(_ signals.Sample, c Choice, _ bool) { got = c }); err != nil || !strings.HasSuffix(got.Because.String(), c.want) {
			t.Errorf("%s: %s, %v; want at its end: %s", name, got.Because, err, c.want)
		}
	}
}

package congestion

import (
	"math"
	"strings"
	"testing"

	"plait.dev/plait/signals"
)

// onePeriod is the choice of a new policy from one sample of one period. The averages are then 1/8 of the sample's rates.
func onePeriod(t *testing.T, policy string, s signals.Sample) Choice {
	t.Helper()
	newPolicy, err := New(policy)
	if err != nil {
		t.Fatal(err)
	}
	s.AtUs, s.IntervalUs = 1_000_000, 200_000
	return newPolicy().Choose(s)
}

// isScore reports whether the chosen algorithm's score is the sum of these two, to a nanosecond.
func isScore(c Choice, lossMs, bottleneckMs float64) bool {
	for _, s := range c.Scores {
		if s.Algorithm == c.Algorithm {
			return math.Abs(s.LossMs-lossMs) < 1e-6 && math.Abs(s.BottleneckMs-bottleneckMs) < 1e-6 && math.Abs(s.LatencyMs-lossMs-bottleneckMs) < 1e-6
		}
	}
	return false
}

// Computed by hand from the printed figures 4-9 to 4-17.
func TestRTCPThesis(t *testing.T) {
	for _, c := range []struct {
		name                 string
		sample               signals.Sample
		want                 signals.Algorithm
		lossMs, bottleneckMs float64
	}{
		{"no loss: least loss entry, 400 kbit/s",
			signals.Sample{SRTTUs: 100_000, Delivered: 45, Algorithm: signals.Cubic}, signals.Cubic, 108.567, 605.153},
		{"nothing sent: the same", signals.Sample{SRTTUs: 100_000, Algorithm: signals.Cubic}, signals.Cubic, 108.567, 605.153},
		{"RTT below the tables", signals.Sample{SRTTUs: 1, Algorithm: signals.Hybla}, signals.Cubic, 108.567, 605.153},
		{"RTT 200 ms, no loss", signals.Sample{SRTTUs: 200_000, Delivered: 45, Algorithm: signals.Cubic}, signals.Scalable, 166.321, 1106.533},
		{"all beyond the tables: 300 ms, 5 %, 10 Mbit/s, from p_r = 8.3 % and p_b = 4.2 %",
			signals.Sample{SRTTUs: 2_000_000, LostSingle: 80, LostBurst: 40, Algorithm: signals.Reno}, signals.Hybla, 1767.224, 208.466},
		{"RTT between 100 and 200 ms is 100 ms; p_r = 1.25 % is 1 %; p_b = 0.0125 % is next to CUBIC's 0.01563 % at 600 kbit/s",
			signals.Sample{SRTTUs: 150_000, Delivered: 899, LostSingle: 100, LostBurst: 1, Algorithm: signals.Cubic}, signals.Scalable, 497.337, 475.45},
		{"p_r = p_b = 1.25 %: Westwood's 1.10518 % at 6400 kbit/s",
			signals.Sample{SRTTUs: 100_000, Delivered: 80, LostSingle: 10, LostBurst: 10, Algorithm: signals.Westwood}, signals.Westwood, 480.2, 133.273},
	} {
		got := onePeriod(t, "rtcp:thesis-2016", c.sample)
		if got.Algorithm != c.want || len(got.Scores) != 9 || !isScore(got, c.lossMs, c.bottleneckMs) {
			t.Errorf("%s: chose %+v\nwant %s, %g + %g ms", c.name, got, c.want, c.lossMs, c.bottleneckMs)
		}
	}
}

// Step 3 reads the column of the algorithm in use: p_b = 0.4 % is 1200 kbit/s by CUBIC's (0.41435 %), 2200 by Reno's
// (0.40505 %). BBR has no column.
func TestRTCPBottleneckByAlgorithmInUse(t *testing.T) {
	for inUse, want := range map[signals.Algorithm]string{
		signals.Cubic: "(bottleneck 1200 kbit/s)", signals.Reno: "(bottleneck 2200 kbit/s)", signals.BBR: "(bottleneck 1200 kbit/s)",
	} {
		got := onePeriod(t, "rtcp:thesis-2016", signals.Sample{SRTTUs: 100_000, Delivered: 968, LostBurst: 32, Algorithm: inUse})
		if !strings.HasSuffix(got.Because.String(), want) {
			t.Errorf("with %s in use: %s, want %s", inUse, got.Because, want)
		}
	}
}

func TestRTCPBecause(t *testing.T) {
	for inUse, want := range map[signals.Algorithm]string{
		signals.Hybla: "cubic scores 713.7 ms and hybla 760.8 ms, at RTT 80 ms (table 100 ms), non-burst loss 0 % and burst loss 0 % (bottleneck 400 kbit/s)",
		signals.BBR:   "cubic scores 713.7 ms and bbr is not a candidate, at RTT 80 ms (table 100 ms), non-burst loss 0 % and burst loss 0 % (bottleneck 400 kbit/s)",
		signals.Cubic: "cubic has the least score, 713.7 ms, at RTT 80 ms (table 100 ms), non-burst loss 0 % and burst loss 0 % (bottleneck 400 kbit/s)",
	} {
		if got := onePeriod(t, "rtcp:thesis-2016", signals.Sample{SRTTUs: 80_000, Algorithm: inUse}); got.Because.String() != want {
			t.Errorf("got  %s\nwant %s", got.Because, want)
		}
	}
}

// Between the ends of periods the choice stays; without an RTT there is none.
func TestRTCPPeriods(t *testing.T) {
	newPolicy, err := New("rtcp:thesis-2016")
	if err != nil {
		t.Fatal(err)
	}
	p := newPolicy()
	for _, c := range []struct {
		atUs, rttUs uint32
		inUse, want signals.Algorithm
		because     string
	}{
		{1_000_000, 200_000, signals.BBR, signals.BBR, "the first period of 200 ms is not over"},
		{1_099_999, 200_000, signals.Cubic, signals.BBR, "the first period of 200 ms is not over"},
		{1_100_000, 200_000, signals.Cubic, signals.Scalable, "scalable scores"},
		{1_200_000, 100_000, signals.Scalable, signals.Scalable, "scalable scores"},
		{1_300_000, 100_000, signals.Scalable, signals.Cubic, "cubic scores"},
		{1_500_000, 0, signals.Cubic, signals.Cubic, "cubic scores"},
		{9_500_000, 200_000, signals.Cubic, signals.Scalable, "scalable scores"},
	} {
		got := p.Choose(signals.Sample{AtUs: uint64(c.atUs), IntervalUs: 100_000, SRTTUs: c.rttUs, Algorithm: c.inUse})
		if got.Algorithm != c.want || !strings.HasPrefix(got.Because.String(), c.because) {
			t.Errorf("at %d us: %s because %s, want %s because %s", c.atUs, got.Algorithm, got.Because, c.want, c.because)
		}
	}
	if got := onePeriod(t, "rtcp:thesis-2016", signals.Sample{Algorithm: signals.Vegas}); got.Algorithm != signals.Vegas || got.Because.String() != "no RTT has been measured" {
		t.Errorf("without an RTT: %+v", got)
	}
}

// On a busy host samples are rare, and the loss is read as it is.
func TestRTCPRareSamples(t *testing.T) {
	newPolicy, err := New("rtcp")
	if err != nil {
		t.Fatal(err)
	}
	for _, everyUs := range []uint32{0, 400_000, 1_600_000, 60_000_000} {
		p, us := newPolicy(), max(everyUs, signals.PeriodUs)
		var got Choice
		for at := uint64(us); at <= 120_000_000; at += uint64(us) {
			got = p.Choose(signals.Sample{AtUs: at, IntervalUs: us, EveryUs: everyUs, SRTTUs: 100_000, Delivered: us / 1000 * 98, LostSingle: us / 1000 * 2})
		}
		if !strings.Contains(got.Because.String(), "non-burst loss 2 %") {
			t.Errorf("a sample every %d ms with a loss of 2 %%: %s", us/1000, got.Because)
		}
	}
}

// Of equal scores the algorithm in use wins, otherwise the lower number. Of two bottlenecks as near the wider one counts.
func TestRTCPTies(t *testing.T) {
	read := func(text string, entry, value column) *grid {
		g, err := parseGrid("tie.csv", strings.NewReader(text), entry, value)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	const head, rows = "rtt_ms,", "100,400,reno,1\n100,400,cubic,1\n100,500,reno,1\n100,500,cubic,1\n"
	tied := &tables{
		nonburst:   read(head+"nonburst_loss_rate,algorithm,latency_s\n100,0,reno,1\n100,0,cubic,1\n", nonburstColumn, latencyColumn),
		bottleneck: read(head+"bottleneck_kbps,algorithm,burst_loss_rate_percent\n"+rows, bottleneckColumn, burstColumn),
		burst:      read(head+"bottleneck_kbps,algorithm,latency_s\n"+rows, bottleneckColumn, latencyColumn),
	}
	for inUse, want := range map[signals.Algorithm]signals.Algorithm{
		signals.Reno: signals.Reno, signals.Cubic: signals.Cubic, signals.BBR: signals.Reno,
	} {
		p := &rtcp{tables: tied}
		got := p.Choose(signals.Sample{AtUs: 200_000, IntervalUs: 200_000, SRTTUs: 1, Algorithm: inUse})
		if got.Algorithm != want || !strings.HasSuffix(got.Because.String(), "(bottleneck 500 kbit/s)") {
			t.Errorf("with %s in use: %+v, want %s", inUse, got, want)
		}
	}
}

// What docs/congestion/rtcp.md says of the printed bottlenecks: with their column turned upside down the choices are those
// that sections 6.3.1 to 6.3.4 report of paths without burst losses; as printed they are not.
func TestRTCPThesisTurned(t *testing.T) {
	printed := embeddedSet(t, "thesis-2016")
	turned := embeddedSet(t, "thesis-2016-turned")
	for _, c := range []struct {
		rttUs, lostPercent uint32 // in one period; p_r is an eighth of it
		turned, printed    signals.Algorithm
	}{
		{100_000, 0, signals.Hybla, signals.Cubic},
		{200_000, 0, signals.Hybla, signals.Scalable},
		{800_000, 0, signals.Hybla, signals.Scalable},
		{100_000, 16, signals.Westwood, signals.Scalable}, // p_r = 2 %
		{100_000, 40, signals.Scalable, signals.Scalable}, // 5 %
		{200_000, 16, signals.Scalable, signals.Scalable},
		{300_000, 48, signals.Hybla, signals.Scalable}, // 6 %
	} {
		s := signals.Sample{AtUs: 200_000, IntervalUs: 200_000, SRTTUs: c.rttUs, LostSingle: c.lostPercent,
			Delivered: 100 - c.lostPercent, Algorithm: signals.Hybla}
		if got := (&rtcp{tables: turned}).Choose(s); got.Algorithm != c.turned {
			t.Errorf("turned: %s, want %s", got.Because, c.turned)
		}
		if got := (&rtcp{tables: printed}).Choose(s); got.Algorithm != c.printed {
			t.Errorf("as printed: %s, want %s", got.Because, c.printed)
		}
	}
}

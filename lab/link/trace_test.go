package link

import (
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestParseTrace(t *testing.T) {
	want := []uint32{0, 5, 5, 4294967295}
	for _, text := range []string{"0\n5\n5\n4294967295\n", "0\r\n5\r\n 5\r\n4294967295", gzipped(t, "0\n5\n5\n4294967295\n")} {
		got, err := ParseTrace(strings.NewReader(text), "x")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestParseTraceErrors(t *testing.T) {
	whole := gzipped(t, "1\n2\n")
	for text, want := range map[string]string{
		"":                         "up.gz: empty recording",
		gzipped(t, ""):             "up.gz: empty recording",
		"0\n0\n":                   "up.gz: recording of length 0",
		"1\n\n2\n":                 "up.gz:2: empty line",
		"7\n6\n":                   "up.gz:2: 6 ms comes after 7 ms",
		"1\nabc\n":                 `up.gz:2: "abc" is not a time`,
		"1.5\n":                    `up.gz:1: "1.5" is not a time`,
		"-1\n":                     `up.gz:1: "-1" is not a time`,
		"1\n4294967296\n":          `up.gz:2: "4294967296" is too large`,
		strings.Repeat("9", 1<<17): "up.gz:1: read line: bufio.Scanner: token too long",
		"\x1f\x8bgarbage":          "up.gz: read gzip header",
		whole[:len(whole)-6]:       "up.gz:3: read line: unexpected EOF",
	} {
		_, err := ParseTrace(strings.NewReader(text), "up.gz")
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: error %v, want %s...", text, err, want)
		}
	}
}

func TestParseTraceTooLong(t *testing.T) {
	rung.Long(t)
	_, err := ParseTrace(strings.NewReader(strings.Repeat("1\n", maxOpportunities+1)), "up.gz")
	if want := "up.gz:4000001: more than 4000000 lines"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s...", err, want)
	}
}

func FuzzParseTrace(f *testing.F) {
	for _, s := range []string{"0\n5\n5\n10\n", "", "3\n2\n", "x\n", "1\n\n", gzipped(f, "1\n2\n")} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		times, err := ParseTrace(bytes.NewReader(b), "x")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x:") {
				t.Errorf("error %v does not begin with the name", err)
			}
			return
		}
		if !slices.IsSorted(times) {
			t.Errorf("times %v go back", times)
		}
		if _, err := NewTrace(TraceConfig{OpportunitiesMs: times}); err != nil {
			t.Errorf("a recording that parses cannot be used: %v", err)
		}
	})
}

// ip is a packet of that many bytes without its Ethernet header.
func ip(number byte, bytes int) Packet { return numbered(number, bytes+14) }

func newTrace(t *testing.T, c TraceConfig) *Trace {
	t.Helper()
	trace, err := NewTrace(c)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func TestTraceDeliversAtOpportunities(t *testing.T) {
	trace := newTrace(t, TraceConfig{OpportunitiesMs: []uint32{10, 20, 20, 45}})
	for i := range byte(6) {
		trace.Send(0, ip(i, 1500))
	}
	// One each at 10 and 45 and two at 20 ms; the recording starts over at 45 ms, so the next are at 55 and 65 ms.
	wantExits(t, trace, exit{10 * ms, 0}, exit{20 * ms, 1}, exit{20 * ms, 2}, exit{45 * ms, 3}, exit{55 * ms, 4}, exit{65 * ms, 5})
}

func TestTracePieces(t *testing.T) {
	trace := newTrace(t, TraceConfig{OpportunitiesMs: []uint32{10, 20, 30}})
	for i, bytes := range []int{500, 500, 600, 2400, 500} {
		trace.Send(0, ip(byte(i), bytes))
	}
	// 10 ms carries 500 + 500 + 500 of 600; 20 ms the last 100 and 1400 of 2400; 30 ms the last 1000 and 500.
	wantExits(t, trace, exit{10 * ms, 0}, exit{10 * ms, 1}, exit{20 * ms, 2}, exit{30 * ms, 3}, exit{30 * ms, 4})
}

func TestTraceUnusedIsLost(t *testing.T) {
	trace := newTrace(t, TraceConfig{OpportunitiesMs: []uint32{10, 20, 30}})
	trace.Send(15*ms, ip(0, 500))
	wantExits(t, trace, exit{20 * ms, 0})
	// 1000 bytes are left of the opportunity at 20 ms, but it is over for a packet that comes then; so is, for one
	// that comes much later, all before it. 20 ms into the 33rd round there is an opportunity at 980 ms.
	trace.Send(20*ms, ip(1, 500))
	wantExits(t, trace, exit{30 * ms, 1})
	trace.Send(979*ms, ip(2, 500))
	wantExits(t, trace, exit{980 * ms, 2})
}

func TestTraceQueue(t *testing.T) {
	trace := newTrace(t, TraceConfig{OpportunitiesMs: []uint32{10}, Queue: QueueLimit{Packets: 2}})
	for i := range byte(3) {
		trace.Send(0, ip(i, 1500))
	}
	wantQueued(t, trace, 2, 2*1514, 1)
	trace.Send(10*ms, ip(3, 1500)) // the first has just left
	wantQueued(t, trace, 2, 2*1514, 1)
	trace.SetQueue(QueueLimit{Bytes: 3 * 1514})
	trace.Send(10*ms, ip(4, 1500))
	trace.Send(10*ms, ip(5, 1500))
	wantQueued(t, trace, 3, 3*1514, 2)
	wantExits(t, trace, exit{10 * ms, 0}, exit{20 * ms, 1}, exit{30 * ms, 3}, exit{40 * ms, 4})
}

func TestTraceStart(t *testing.T) {
	// 47 ms is 2 ms into the recording's second round: the next opportunities are 8 and 43 ms away.
	trace := newTrace(t, TraceConfig{OpportunitiesMs: []uint32{10, 45}, Start: 47 * ms})
	trace.Send(0, ip(0, 1500))
	trace.Send(0, ip(1, 1500))
	wantExits(t, trace, exit{8 * ms, 0}, exit{43 * ms, 1})
}

func TestTraceUnusable(t *testing.T) {
	for _, times := range [][]uint32{nil, {0, 0}} {
		if _, err := NewTrace(TraceConfig{OpportunitiesMs: times}); err == nil {
			t.Errorf("recording %v was accepted", times)
		}
	}
}

// Against an oracle that steps through all opportunities one after the other, as mahimahi does.
func TestSlottedAgainstOracle(t *testing.T) {
	times := []uint32{1, 1, 4, 9, 9, 9, 20}
	trace := newTrace(t, TraceConfig{OpportunitiesMs: times, Queue: QueueLimit{Packets: 5}})
	type waiting struct {
		number byte
		left   int
	}
	var queue []waiting
	var got, want []exit
	for step := range 2000 {
		now := time.Duration(step) * ms
		for _, at := range times {
			if step < int(at) || (step-int(at))%20 != 0 {
				continue
			}
			for free := 1500; free > 0 && len(queue) > 0; {
				used := min(free, queue[0].left)
				free -= used
				if queue[0].left -= used; queue[0].left == 0 {
					want = append(want, exit{now, queue[0].number})
					queue = queue[1:]
				}
			}
		}
		if sizes := []int{200, 1500, 2700, 64, 1000}; step%3 == 0 {
			p := ip(byte(step), sizes[step/3%5])
			if len(queue) < 5 {
				queue = append(queue, waiting{byte(step), sizes[step/3%5]})
			}
			trace.Send(now, p)
		}
	}
	for at, ok := trace.Next(); ok && at < 2000*ms; at, ok = trace.Next() {
		p, _ := trace.Receive(at)
		got = append(got, exit{at, p.Data[0]})
	}
	if len(want) < 300 || !slices.Equal(got, want) {
		t.Errorf("%d packets came out, the oracle's %d; or at other times", len(got), len(want))
	}
}

package daemon

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// errUnwatched is the answer of a plait whose kernel cannot watch flows.
var errUnwatched = errors.New("this plait does not watch flows: plait doctor says what the kernel lacks, and plait's log why")

// recordEvery is how often flows are read for plait egress flows, unless that takes more than a tenth of the time.
const recordEvery = 100 * time.Millisecond

// recordColumns are those of plait egress flows; docs/egress/flows.md describes them.
var recordColumns = []string{"time_s", "interval_s", "exit", "prefix", "client", "client_port", "local", "local_port", "mptcp_token",
	"acked_bytes", "sent_segments", "resent_segments", "srtt_us"}

// recorder writes what flows do, a line for each that did something in an interval.
type recorder struct {
	flows *flows
	// where says by which exit a flow leaves, and to which network of clients.
	where func(mptcp.Ends) (exit string, network netip.Prefix)
	out   *csv.Writer
	last  map[bpf.FlowKey]egress.FlowCount
	// before and at are when it was read for the last two times.
	before, at time.Time
}

// record is a line.
type record struct {
	mptcp.Ends
	egress.FlowCount
	token uint32
}

// read takes in what all flows have done, and returns what they did since the last time; the first time that is nothing.
func (r *recorder) read(now time.Time) (did []record, err error) {
	flows := make(map[bpf.FlowKey]egress.FlowCount, len(r.last))
	err = r.flows.count(func(k bpf.FlowKey, e mptcp.Ends, s *bpf.FlowStats) {
		f := egress.FlowCount{AckedBytes: s.AckedBytes, SentSegments: s.SentSegments, Resent: s.RetransmittedSegments}
		flows[k] = f
		if since := f.Since(r.last[k]); r.last != nil && since != (egress.FlowCount{}) {
			since.SRTTUs = s.SrttUs
			did = append(did, record{e, since, s.Token})
		}
	})
	r.last, r.before, r.at = flows, r.at, now
	return did, err
}

// write writes lines. Whoever waits for them does not hold up others.
func (r *recorder) write(did []record) error {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	at, interval := float64(r.at.UnixMicro())/1e6, r.at.Sub(r.before).Seconds()
	for _, d := range did {
		exit, network := r.where(d.Ends)
		prefix, token := "", ""
		if network.IsValid() {
			prefix = network.String()
		}
		if d.token != 0 {
			token = fmt.Sprintf("%08x", d.token)
		}
		_ = r.out.Write([]string{strconv.FormatFloat(at, 'f', 6, 64), strconv.FormatFloat(interval, 'f', 6, 64), exit, prefix,
			d.Remote.Addr().String(), number(uint64(d.Remote.Port())), d.Local.Addr().String(), number(uint64(d.Local.Port())), token,
			number(d.AckedBytes), number(uint64(d.SentSegments)), number(uint64(d.Resent)), number(uint64(d.SRTTUs))}) // Flush tells its error
	}
	r.out.Flush()
	return r.out.Error()
}

// run writes until ctx ends, which is an error, or for some time; 0: without end. Each interval is sent at once.
func (r *recorder) run(ctx context.Context, sent func() error, length time.Duration) error {
	_ = r.out.Write(recordColumns) // Flush tells its error
	begin := time.Now()
	for {
		now := time.Now()
		did, err := r.read(now)
		took := time.Since(now)
		if err == nil {
			err = errors.Join(r.write(did), sent())
		}
		if err != nil {
			return err
		}
		if length > 0 && now.Sub(begin) >= length {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(recordEvery-time.Since(now), 9*took)):
		}
	}
}

// where is what a recorder asks.
func (x *exits) where(e mptcp.Ends) (exit string, network netip.Prefix) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.exitOf(e.Local.Addr(), e.Remote.Addr()), x.plan.Network(e.Remote.Addr())
}

// record answers plait egress flows.
func (x *exits) record(w http.ResponseWriter, r *http.Request) {
	var seconds float64
	var err error
	switch text := r.URL.Query().Get("seconds"); {
	case x == nil:
		err = errNoEgress
	case x.flows == nil:
		err = errUnwatched
	case text != "":
		if seconds, err = strconv.ParseFloat(text, 64); err != nil || !(seconds > 0 && seconds < 1e9) {
			err = fmt.Errorf("seconds %s: expected a number above 0", text)
		}
	}
	if err != nil {
		answer(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "text/csv")
	one := recorder{flows: x.flows, where: x.where, out: csv.NewWriter(w)}
	if err := one.run(r.Context(), http.NewResponseController(w).Flush, time.Duration(seconds*float64(time.Second))); err != nil {
		panic(http.ErrAbortHandler) // so that the client does not take this for the end
	}
}

// EgressFlows writes what flows do as CSV, line by line, until ctx ends or for so many seconds; 0: without end.
func (c *ControlClient) EgressFlows(ctx context.Context, seconds float64, out io.Writer) error {
	request := "http://plait/egress/flows"
	if seconds != 0 {
		request += "?seconds=" + strconv.FormatFloat(seconds, 'g', -1, 64)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, request, nil)
	if err != nil {
		return err
	}
	patient := http.Client{Transport: c.http.Transport}
	response, err := patient.Do(r)
	if err != nil {
		return c.unanswered("egress/flows", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body) // what there is of it is said
		return c.refusal("egress/flows", response.StatusCode, body)
	}
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadSlice('\n') // whole lines only: an end in the middle leaves none behind
		if err == nil {
			if _, err := out.Write(line); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		return c.unanswered("egress/flows", err)
	}
}

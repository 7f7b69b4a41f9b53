package traffic

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"plait.dev/plait/lab/result"
)

// ledger follows bursts through the byte stream, in which they follow each other. Times are since Clock.Origin.
type ledger struct {
	sizes []int64 // in turn
	meter *meter  // told when data is due

	mu    sync.Mutex
	got   int64
	begun int64           // bytes of the bursts of which some is there
	ended int64           // bytes of those of which all is
	due   []time.Duration // when each burst was sent, or should have been
	first []time.Duration // when its first byte was there
	last  []time.Duration // when its last byte was there
}

// size of burst i, from 0.
func (l *ledger) size(i int) int64 { return l.sizes[i%len(l.sizes)] }

// send records a burst about to be written.
func (l *ledger) send(due time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = append(l.due, due)
	l.meter.expect(due)
}

// blocked adds the bursts that were due until the end of an open loop and could not begin: the one before them was never written.
func (l *ledger) blocked(count int, gap, end time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(l.due); n > 0 && n < count && l.due[n-1]+gap <= end; n++ {
		l.due = append(l.due, l.due[n-1]+gap)
	}
}

// receive takes in n bytes that arrived at time at and says how many bursts are complete, and whether none is under way.
func (l *ledger) receive(at time.Duration, n int) (complete int, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got += int64(n)
	for l.begun < l.got {
		l.begun += l.size(len(l.first))
		l.first = append(l.first, at)
	}
	for l.ended+l.size(len(l.last)) <= l.got {
		l.ended += l.size(len(l.last))
		l.last = append(l.last, at)
	}
	idle = len(l.last) == len(l.due)
	if idle {
		l.meter.rest()
	}
	return len(l.last), idle
}

// outcome is the statistics of the bursts after the first warmup, at the end of the application.
func (l *ledger) outcome(warmup int, end time.Duration, out *Outcome) {
	latency, spread := []float64{}, []float64{}
	within, judged := 0, 0
	for i := warmup; i < len(l.due); i++ {
		switch {
		case i < len(l.last):
			latency = append(latency, ms(l.last[i]-l.due[i]))
			spread = append(spread, ms(l.last[i]-l.first[i]))
			judged++
			if l.last[i]-l.due[i] <= time.Second {
				within++
			}
		case end-l.due[i] > time.Second:
			judged++
		}
	}
	out.Metrics["count"] = float64(len(latency))
	if judged > 0 {
		out.Metrics["within_1s_percent"] = round(100*float64(within)/float64(judged), 3)
	}
	describe(out.Metrics, "", latency, "mean_ms", "sd_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")
	describe(out.Metrics, "first_last_", spread, "mean_ms", "sd_ms", "p95_ms")
	out.Samples = []result.Samples{
		{Name: "first_last_ms", Unit: "ms", Values: spread},
		{Name: "latency_ms", Unit: "ms", Values: latency},
	}
}

// runBursts writes the bursts: in an open loop one every gap, else not before the one before has arrived, which arrived
// tells inside this process. A burst that could not start when it was due is still timed from then.
func (r *run) runBursts(ctx context.Context, l *ledger, write func(bytes int64) error, arrived <-chan time.Duration) error {
	alarm, err := newAlarm(ctx)
	if err != nil {
		return err
	}
	defer alarm.close()
	if r.app.OpenLoop {
		defer func() { l.blocked(r.app.Count, milliseconds(r.app.GapMs), r.end()) }()
	}
	due := r.since()
	for i := 0; i < r.app.Count; i++ {
		sent := due
		if now := r.since(); now < due {
			if err := alarm.until(r.at(due)); err != nil {
				return err
			}
			sent = r.since()
		}
		l.send(sent)
		if err := write(l.size(i)); err != nil {
			return err
		}
		due += milliseconds(r.app.GapMs)
		if r.app.OpenLoop {
			continue
		}
		select {
		case at := <-arrived:
			due = max(due, at)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// transfer connects and runs both sides until all bursts have arrived or ctx is done.
func (l *ledger) transfer(ctx context.Context, r *run) (time.Duration, error) {
	p, err := r.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer p.close()
	arrived, sent := make(chan time.Duration, 1), int64(0)
	write := func(ctx context.Context) error {
		return r.runBursts(ctx, l, func(n int64) error {
			sent += n
			return send(p.sender, sent-n, n)
		}, arrived)
	}
	read := func() error {
		return r.receive(&checked{from: p.receiver}, func(at time.Duration, n int) bool {
			complete, idle := l.receive(at, n)
			if idle && !r.app.OpenLoop {
				arrived <- at
			}
			return complete == r.app.Count
		})
	}
	return p.connectTook, p.both(ctx, write, read)
}

// bursts sends count bursts of bytes on one connection.
func bursts(ctx context.Context, r *run) (*Outcome, error) {
	r.begin()
	sizes := append([]int64{r.app.Bytes}, r.app.MoreBytes...)
	if slices.Min(sizes) <= 0 || r.app.Count <= 0 {
		return nil, errors.New("start bursts: bytes, more_bytes and count must be greater than 0")
	}
	l := &ledger{sizes: sizes, meter: r.meter}
	took, err := l.transfer(ctx, r)
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	end, all := r.end(), len(l.last) == r.app.Count
	if all {
		end = l.last[len(l.last)-1]
	}
	out := r.meter.outcome(end)
	if all {
		out.Metrics["completion_s"] = round((end - r.start).Seconds(), 6)
	}
	if took > 0 {
		out.Metrics["connect_ms"] = ms(took)
	}
	l.outcome(r.app.Warmup, end, out)
	return out, nil
}

package traffic

import (
	"context"
	"errors"
	"time"

	"plait.dev/plait/lab/result"
)

const (
	// chunkEvery is how often a stream's content is produced, unless its rate is so low that
	// a chunk would be smaller than chunkMinBytes.
	chunkEvery    = 10 * time.Millisecond
	chunkMinBytes = 100
)

// source is content produced at a constant rate, whether or not the network takes it: chunk k, from 0, is there at
// begin + k*every and holds the bytes from offset(k) to offset(k+1) of the stream.
type source struct {
	begin, every time.Duration
	rate         float64 // bytes per second
}

func newSource(begin time.Duration, rateMbps float64) source {
	rate := rateMbps * 1e6 / 8
	return source{begin: begin, every: max(chunkEvery, seconds(chunkMinBytes/rate)), rate: rate}
}

func (s source) produced(k int64) time.Duration { return s.begin + time.Duration(k)*s.every }

func (s source) offset(k int64) int64 { return int64(s.rate * s.every.Seconds() * float64(k)) }

// delays follows the chunks of a source through the byte stream.
type delays struct {
	source source
	got    int64
	chunk  int64 // the next to be complete
	ms     []float64
}

// receive takes in n bytes that arrived at time at: a chunk's delay is from its production to its last byte.
func (d *delays) receive(at time.Duration, n int) {
	d.got += int64(n)
	for d.got >= d.source.offset(d.chunk+1) {
		d.ms = append(d.ms, ms(at-d.source.produced(d.chunk)))
		d.chunk++
	}
}

// runSource writes the chunks as they are produced, until the context is done. Where the socket has no room it falls
// behind, and catches up as fast as the socket takes it.
func (r *run) runSource(ctx context.Context, s source, write func(from, to int64) error) error {
	alarm, err := newAlarm(ctx)
	if err != nil {
		return err
	}
	defer alarm.close()
	for k := int64(0); ; k++ {
		if err := alarm.until(r.at(s.produced(k))); err != nil {
			return err
		}
		if err := write(s.offset(k), s.offset(k+1)); err != nil {
			return err
		}
	}
}

// transfer connects and keeps both sides going until ctx is done.
func (d *delays) transfer(ctx context.Context, r *run) (time.Duration, error) {
	p, err := r.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer p.close()
	d.source = newSource(r.since(), r.app.RateMbps)
	r.meter.expect(d.source.begin)
	produce := func(ctx context.Context) error {
		return r.runSource(ctx, d.source, func(from, to int64) error { return send(p.sender, from, to-from) })
	}
	consume := func() error {
		return r.receive(&checked{from: p.receiver}, func(at time.Duration, n int) bool { d.receive(at, n); return false })
	}
	return p.connectTook, p.both(ctx, produce, consume)
}

// stream sends at a constant bit rate until stop_s.
func stream(ctx context.Context, r *run) (*Outcome, error) {
	r.begin()
	if r.app.RateMbps <= 0 {
		return nil, errors.New("start stream: rate_mbps must be greater than 0")
	}
	d := &delays{}
	took, err := d.transfer(ctx, r)
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	end := r.end()
	out := r.meter.outcome(end)
	if took > 0 {
		out.Metrics["connect_ms"] = ms(took)
	}
	out.Metrics["completion_s"] = round((end - r.start).Seconds(), 6)
	out.Samples = []result.Samples{{Name: "delay_ms", Unit: "ms", Values: d.ms}}
	describe(out.Metrics, "delay_", d.ms, "p50_ms", "p95_ms", "p99_ms", "max_ms")
	return out, nil
}

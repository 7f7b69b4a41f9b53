package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"plait.dev/plait/lab/netns"
	"plait.dev/plait/lab/result"
)

const (
	// pingBytes is the ICMP message: 8 bytes of header and the 56 of data that ping(8) sends.
	pingBytes = 64
	// pingLinger is how long answers are waited for after the last request: this, or twice the longest round trip seen.
	pingLinger = time.Second
)

// echo says which ICMP types ask and answer in an address family, and how Go names its raw sockets.
type echo struct {
	network         string
	request, answer byte
}

var (
	echo4 = echo{"ip4:1", 8, 0}      // RFC 792
	echo6 = echo{"ip6:58", 128, 129} // RFC 4443
)

// message is an echo request. The kernel fills in the checksum for IPv6 only (RFC 3542, section 3.1); where it does, it
// ignores ours.
func (e echo) message(id, seq uint16) []byte {
	m := make([]byte, pingBytes)
	m[0] = e.request
	binary.BigEndian.PutUint16(m[4:], id)
	binary.BigEndian.PutUint16(m[6:], seq)
	binary.BigEndian.PutUint16(m[2:], checksum(m))
	return m
}

// parse gives the sequence number of an answer to id.
func (e echo) parse(m []byte, id uint16) (seq uint16, ok bool) {
	if len(m) < 8 || m[0] != e.answer || binary.BigEndian.Uint16(m[4:]) != id {
		return 0, false
	}
	return binary.BigEndian.Uint16(m[6:]), true
}

// checksum of the internet (RFC 1071) over an even number of bytes.
func checksum(m []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// trips are the round trips of the pings: request i carries sequence number i modulo 65536.
type trips struct {
	mu       sync.Mutex
	sent     []time.Duration
	answered []bool
	left     int             // not answered
	longest  time.Duration   // round trip
	rtt      []time.Duration // by arrival
}

func (t *trips) send(at time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = append(t.sent, at)
	t.answered = append(t.answered, false)
	t.left++
}

// receive takes in the answer to the latest request with this sequence number; a second answer does not count.
func (t *trips) receive(at time.Duration, seq uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.sent) - 1
	i := last - int(uint16(last)-seq)
	if i >= 0 && !t.answered[i] {
		t.answered[i] = true
		t.left--
		t.rtt = append(t.rtt, at-t.sent[i])
		t.longest = max(t.longest, at-t.sent[i])
	}
}

// patience is for how much longer answers are worth waiting for after the last request: 0 if there are none to come.
func (t *trips) patience() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left == 0 {
		return 0
	}
	return t.limit()
}

// limit is how old a request must be to be lost.
func (t *trips) limit() time.Duration { return max(pingLinger, 2*t.longest) }

// outcome is what was measured up to end. Requests that are on their way when stop_s ends it are not lost.
func (t *trips) outcome(end time.Duration) *Outcome {
	out := &Outcome{Metrics: map[string]float64{"count": float64(len(t.sent))}}
	lost := 0
	for i, sent := range t.sent {
		if !t.answered[i] && end-sent >= t.limit() {
			lost++
		}
	}
	if judged := len(t.rtt) + lost; judged > 0 {
		out.Metrics["lost_percent"] = round(100*float64(lost)/float64(judged), 3)
	}
	values := make([]float64, len(t.rtt))
	for i, rtt := range t.rtt {
		values[i] = ms(rtt)
	}
	describe(out.Metrics, "", values, "mean_ms", "sd_ms", "min_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")
	out.Samples = []result.Samples{{Name: "rtt_ms", Unit: "ms", Values: values}}
	return out
}

// runPings sends the requests, one every gap_ms, and waits for the answers that are missing then. A request the kernel
// cannot send, for want of a route, is as lost as any.
func (r *run) runPings(ctx context.Context, t *trips, send func(seq uint16), answered <-chan struct{}) error {
	alarm, err := newAlarm(ctx)
	if err != nil {
		return err
	}
	defer alarm.close()
	gap := milliseconds(r.app.GapMs)
	for i := 0; i < r.app.Count; i++ {
		if err := alarm.until(r.at(r.start + time.Duration(i)*gap)); err != nil {
			return err
		}
		t.send(r.since())
		send(uint16(i))
	}
	for last := r.since(); ; {
		left := last + t.patience() - r.since()
		if left <= 0 {
			return nil
		}
		select {
		case <-answered:
		case <-time.After(left):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// runAnswers takes in answers until the socket is closed.
func (r *run) runAnswers(kind echo, conn net.PacketConn, t *trips, answered chan<- struct{}) {
	buf := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		seq, ok := kind.parse(buf[:n], r.ends.Port)
		if err != nil || !ok || from.String() != r.ends.To.String() {
			continue
		}
		t.receive(r.since(), seq)
		select {
		case answered <- struct{}{}:
		default: // one notice waits already
		}
	}
}

// ping asks the receiver's host for echoes, count times.
func ping(ctx context.Context, r *run) (*Outcome, error) {
	r.begin()
	e, kind := r.ends, echo6
	if e.From.Is4() {
		kind = echo4
	}
	if !e.To.IsValid() || r.app.GapMs <= 0 {
		return nil, errors.New("start ping: it needs the receiver's address and gap_ms greater than 0")
	}
	var conn net.PacketConn
	err := netns.Do(e.FromNS, func() (err error) {
		conn, err = net.ListenPacket(kind.network, e.From.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open raw socket on %s at %s: %w", e.From, e.FromNS, err)
	}
	t, answered := &trips{}, make(chan struct{}, 1)
	var receiver sync.WaitGroup
	receiver.Go(func() { r.runAnswers(kind, conn, t, answered) })
	peer := &net.IPAddr{IP: e.To.AsSlice()}
	err = r.runPings(ctx, t, func(seq uint16) { _, _ = conn.WriteTo(kind.message(e.Port, seq), peer) }, answered)
	conn.Close()
	receiver.Wait()
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	return t.outcome(r.end()), nil
}

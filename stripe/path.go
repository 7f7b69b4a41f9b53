package stripe

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// wire is one path's connection as a carrier makes it: authenticated, encrypted, reliable, in order.
type wire interface {
	net.Conn
	// writeAll writes the pieces, as one if it can.
	writeAll(pieces [][]byte) error
	// waitRoom returns when what is written next would leave soon, not wait behind much else; or with the connection's error.
	waitRoom() error
	// setAhead says how many bytes may wait to be sent before there is no room.
	setAhead(bytes int)
	// kernelSends reports whether what was written goes to the peer even if this process ends after Close.
	kernelSends() bool
	// buffered reports whether there is more to read at once.
	buffered() bool
	// acknowledged grows with what the peer's host acknowledges of what was written.
	acknowledged() uint64
	// sinceHeard is how long ago the peer's host acknowledged anything, out of order or twice as well.
	sinceHeard() time.Duration
	// packetRTT is the transport's smoothed round-trip time: of packets, where the path's own is of chunks and what waits behind them. 0: not known.
	packetRTT() time.Duration
}

const (
	// aheadMin waits in the kernel behind what is on its way: more would be decided too early, on 2 Mbit/s by 4 ms for each KB; with less, waking
	// this process would leave gaps.
	aheadMin = 4 << 10
	// aheadTime is the same for fast paths, where waking this process costs more than a chunk takes: it wakes 1000 times a second.
	aheadTime = time.Millisecond
	// maxBatch is how many chunks are written at once at most.
	maxBatch = 16
	// ackEvery is how many chunks are acknowledged together at most, while more are there to be read.
	ackEvery = 16
	// drainTime is how long what has come may take to be read when writing has failed.
	drainTime = 50 * time.Millisecond
	// retake is how often a path without work asks the scheduler again while anything is under way.
	retake = 10 * time.Millisecond
)

// path is one connection of a session. What is not said to be the goroutines' own is guarded by the session's lock.
type path struct {
	c      *Conn
	wire   wire
	id     uint32
	link   string // of this host
	to     string // of the peer
	flight *flight

	arrived  uint64 // chunks that came
	unacked  int    // of them, since the last acknowledgement
	ackDue   bool
	pongDue  bool
	pong     uint64
	pingDue  bool
	linksDue bool
	pending  []byte // other frames to send
	last     bool   // the session ends: nothing follows what is pending
	asleep   bool
	met      bool // the peer has said something since the greeting
	moves    bool // it has said that it lives, but not the path

	small  []byte   // what is written besides pinned chunks
	pieces [][]byte // of small, and the frames of pinned, in order
	pinned []*chunk

	pingedAt      time.Time
	receivedBytes uint64
	in, out       meterRate

	wake chan struct{}
	done chan struct{} // closed when the path has ended
	err  error         // why, valid when done is closed

	broken error // why nothing can be written any more
}

// meterRate is bytes per second, averaged over about a second.
type meterRate struct {
	bps    float64
	before uint64
	at     time.Time // of before
}

// tick is called about every tickEvery: on a busy host later, with what came in all of that time.
func (m *meterRate) tick(bytes uint64, now time.Time) {
	d := now.Sub(m.at).Seconds()
	if d <= 0 {
		return
	}
	m.bps += (float64(bytes-m.before)/d - m.bps) * min(1, 2*d)
	m.before, m.at = bytes, now
}

// control appends what is due besides chunks.
func (p *path) control(b []byte) []byte {
	if p.ackDue {
		b = appendNumbers(b, frameAck, p.arrived, p.c.in.next, p.c.in.limit, p.c.in.beyond())
		p.c.advertised = max(p.c.advertised, p.c.in.limit)
		p.ackDue, p.unacked = false, 0
	}
	if p.pongDue {
		b = appendNumbers(b, framePong, p.pong)
		p.pongDue = false
	}
	if p.pingDue {
		b = appendNumbers(b, framePing, uint64(p.pingedAt.UnixNano()))
		p.pingDue = false
	}
	if p.linksDue {
		b = appendJSON(b, frameLinks, p.c.peers())
		p.linksDue = false
	}
	b = append(b, p.pending...)
	p.pending = p.pending[:0]
	return b
}

// hasControl reports whether control would append anything.
func (p *path) hasControl() bool {
	return len(p.pending) > 0 || p.ackDue || p.pongDue || p.pingDue || p.linksDue
}

// fill gathers what to write now. Frames of much data are not copied: they are pinned until they are written.
func (p *path) fill() {
	for _, c := range p.pinned {
		p.c.out.unpin(c)
	}
	p.small, p.pieces, p.pinned = p.small[:0], p.pieces[:0], p.pinned[:0]
	if p.err != nil {
		return // a chunk taken now would never be missed
	}
	p.small = p.control(p.small)
	from := 0
	defer func() { p.cutSmall(from); p.asleep = len(p.pieces) == 0 }()
	if p.last {
		return
	}
	now := time.Now()
	for _, q := range p.c.paths {
		if q.flight.doubtful(now) {
			q.flight.heard = now.Add(-q.wire.sinceHeard())
		}
	}
	batch := min(maxBatch, 1+int(p.flight.rate*aheadTime.Seconds()/maxPayload))
	for range batch {
		c := p.c.out.take(p.flight, now)
		if c == nil {
			break
		}
		if c.size < maxPayload/4 {
			p.small = append(p.small, c.frame...)
			continue
		}
		p.cutSmall(from)
		from = len(p.small)
		c.pins++
		p.pieces, p.pinned = append(p.pieces, c.frame), append(p.pinned, c)
	}
	if p.c.out.room() >= p.c.out.maxUnsent()/4 {
		p.c.writable.signal()
	}
}

// cutSmall makes a piece of what was added to small.
func (p *path) cutSmall(from int) {
	if len(p.small) > from {
		p.pieces = append(p.pieces, p.small[from:])
	}
}

// wakeUp makes a sleeping writer ask again.
func (p *path) wakeUp() {
	if p.asleep {
		p.asleep = false
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// runWriter sends until the path ends.
func (p *path) runWriter() {
	again := time.NewTimer(retake)
	defer again.Stop()
	ahead := aheadMin
	for {
		p.c.mu.Lock()
		room := !p.hasControl() && !p.last && !p.c.out.idle()
		want := max(aheadMin, int(p.flight.rate*aheadTime.Seconds()))
		p.c.mu.Unlock()
		if want > 2*ahead || 4*want < ahead {
			ahead = want
			p.wire.setAhead(ahead)
		}
		if room {
			if err := p.wire.waitRoom(); err != nil {
				p.drain(err)
				return
			}
		}
		p.c.mu.Lock()
		p.fill()
		last, waiting := p.last, !p.c.out.idle()
		p.c.mu.Unlock()
		if len(p.pieces) > 0 {
			if err := p.wire.writeAll(p.pieces); err != nil {
				p.drain(err)
				return
			}
		}
		if last {
			p.finish()
			return
		}
		if len(p.pieces) > 0 {
			continue
		}
		var tick <-chan time.Time
		if waiting {
			again.Reset(retake)
			tick = again.C
		}
		select {
		case <-p.wake:
		case <-tick:
		case <-p.done:
			return
		}
	}
}

// drain lets the reader take what the peer sent before the path broke, its farewell perhaps, and end the path.
func (p *path) drain(err error) {
	p.c.mu.Lock()
	p.broken = err
	p.c.mu.Unlock()
	_ = p.wire.SetReadDeadline(time.Now().Add(drainTime))
}

// finish waits until the peer has closed the path, too: to close with anything unread would reset the connection, and the
// peer might lose what was sent last. If both streams have ended, nothing of value is left on its way.
func (p *path) finish() {
	p.c.mu.Lock()
	over := p.c.in.over() && p.c.out.idle() && p.wire.kernelSends()
	p.c.mu.Unlock()
	if over {
		p.end(net.ErrClosed)
		return
	}
	if half, ok := p.wire.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = p.wire.SetReadDeadline(time.Now().Add(closeWait))
	<-p.done
}

// runReader takes what comes until the path ends.
func (p *path) runReader() {
	buf := buffers.Get().(*[maxFrame]byte)[:]
	for {
		f, err := readFrame(p.wire, buf)
		if err != nil {
			p.end(err)
			return
		}
		kept, err := p.receive(f)
		if err != nil {
			p.c.finish(fmt.Errorf("peer breaks the protocol: %w", err), err.Error())
			p.end(err)
			return
		}
		if kept {
			buf = buffers.Get().(*[maxFrame]byte)[:]
		}
	}
}

// receive takes a frame. kept says that its body must not be used again.
func (p *path) receive(f frame) (kept bool, err error) {
	c := p.c
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.err != nil {
		return false, nil // too late: what it carried is with other paths
	}
	p.met = true
	switch f.kind {
	case frameData:
		if kept, err = p.receiveData(f); err != nil {
			return kept, err
		}
	case frameAck:
		n, err := readNumbers(f.kind, f.body, 4)
		if err != nil {
			return false, err
		}
		if err := c.out.ack(p.flight, n[0], n[1], n[2], n[3], now); err != nil {
			return false, err
		}
		c.wakeWriters()
	case framePing:
		n, err := readNumbers(f.kind, f.body, 1)
		if err != nil {
			return false, err
		}
		p.pong, p.pongDue = n[0], true
		p.wakeUp()
	case framePong:
		n, err := readNumbers(f.kind, f.body, 1)
		if err != nil {
			return false, err
		}
		if !p.flight.pingAt.IsZero() && n[0] == uint64(p.pingedAt.UnixNano()) {
			p.flight.sampleRTT(now.Sub(p.flight.pingAt))
			p.flight.pingAt, p.flight.lastAck = time.Time{}, now
		}
	case frameLinks:
		var peers []Peer
		if err := json.Unmarshal(f.body, &peers); err != nil {
			return false, fmt.Errorf("list of links: %w", err)
		}
		c.hear(peers)
	case frameGone:
		if len(f.body) != 4 {
			return false, errors.New("path that is gone: not 4 bytes")
		}
		if gone := c.paths[binary.BigEndian.Uint32(f.body)]; gone != nil && gone != p {
			go gone.end(errGone)
		}
	case frameMove:
		p.moves = true
	case frameClose:
		c.ending = true
		go c.takeFarewell(string(f.body))
	}
	if p.unacked >= ackEvery || p.unacked > 0 && !p.wire.buffered() { // what follows may be no chunk
		p.ackDue = true
		p.wakeUp()
	}
	return kept, nil
}

// receiveData takes a chunk. Small ones are copied, so that a peer who sends bytes singly does not fill memory with large buffers.
func (p *path) receiveData(f frame) (kept bool, err error) {
	data := f.body
	if kept = len(data) >= maxPayload/4; !kept {
		data = append([]byte(nil), data...)
	}
	fresh, err := p.c.in.insert(f.number, data)
	if err != nil {
		return kept, err
	}
	if !fresh {
		kept = false
	}
	p.arrived++
	p.receivedBytes += uint64(len(data))
	for _, e := range p.flight.ends {
		e.received += uint64(len(data))
		e.used.Add(uint64(len(data)))
	}
	if p.c.in.ready() {
		p.c.readable.signal()
	}
	p.unacked++
	return kept, nil
}

// end takes the path out of its session; what it carried goes to the others. Only the first call counts.
func (p *path) end(err error) {
	c := p.c
	c.mu.Lock()
	select {
	case <-p.done:
		c.mu.Unlock()
		return
	default:
	}
	if p.broken != nil {
		err = p.broken
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errGone
	}
	p.err = err
	close(p.done)
	c.drop(p)
	known, goesOn := c.farewell || c.err != nil && byPeer(err), c.err == nil
	c.mu.Unlock()
	if goesOn && errors.Is(err, errLinkGone) { // the peer may hear of the end all the same, as it does if this process dies: with IPv6 what leaves an address that is gone still goes out
		_ = p.wire.SetWriteDeadline(time.Now().Add(drainTime))
		_ = p.wire.writeAll([][]byte{appendFrame(nil, frameMove, nil)})
	}
	_ = p.wire.Close()
	if known {
		c.cut()
	}
}

package stripe

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"

	"plait.dev/plait/stripe/internal/printable"
)

// CloseWrite ends this end's stream: the peer reads [io.EOF] after what was written. Reading goes on. A Write that waits ends.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.opError("close", c.err)
	}
	c.out.end(time.Now())
	c.writable.signal() // a Write that waits for room gets none any more
	c.wakeWriters()
	return nil
}

// Flush waits until the peer has acknowledged everything that was written, however long its reader pauses or all links are
// gone, while the connection lives: Config.Patience and the deadline of writes end it.
func (c *Conn) Flush() error { return c.flush(0) }

// Close ends the connection. It waits until the peer has acknowledged everything that was written, as long as that goes
// on: after 10 s without progress it gives up and returns an error. After Flush it need not wait.
func (c *Conn) Close() error {
	c.mu.Lock()
	again := c.inClose
	c.inClose = true
	c.mu.Unlock()
	c.leave()
	if again {
		return c.opError("close", net.ErrClosed)
	}
	_ = c.CloseWrite()
	err := c.flush(closeStall)
	c.finish(net.ErrClosed, "")
	c.linger()
	return err
}

// Abort closes the connection without waiting: what the peer has not acknowledged may be lost.
func (c *Conn) Abort() {
	c.leave()
	c.finish(net.ErrClosed, "aborted")
	c.linger()
}

// leave ends reading and writing, also where the peer has ended the connection before.
func (c *Conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	c.readable.signal()
	c.writable.signal()
}

// linger lets paths end, for a moment.
func (c *Conn) linger() {
	gone := make(chan struct{})
	go func() { c.running.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(closeWait):
		c.cut()
	}
}

// flush waits until everything is acknowledged. A stall above 0 is how long it waits without progress; 0 is until the deadline.
func (c *Conn) flush(stall time.Duration) error {
	var late <-chan struct{}
	if stall == 0 {
		late = c.writeDeadline.wait()
	}
	for {
		c.mu.Lock()
		idle, base, heard, err := c.out.idle(), c.out.base, c.heard(), c.err
		if errors.Is(err, ErrClosedByPeer) && c.out.delivered() {
			idle = true // the peer need not wait for the end to close
		}
		c.mu.Unlock()
		if idle {
			c.emptied.signal() // to others that wait
			return nil
		}
		if err != nil {
			return c.opError("close", err)
		}
		select {
		case <-c.emptied:
		case <-c.done:
		case <-late:
			return c.opError("write", timeoutError{})
		case <-time.After(cmp.Or(stall, closeStall)):
			c.mu.Lock()
			stalled := c.out.base == base && c.heard() == heard
			c.mu.Unlock()
			if stalled && stall > 0 {
				return c.opError("close", fmt.Errorf("peer has not taken what was written for %v", stall))
			}
		}
	}
}

// heard changes while the peer's host acknowledges some of a chunk: below 13 kbit/s all of one takes more than closeStall.
func (c *Conn) heard() (n uint64) {
	for _, p := range c.paths {
		if p.flight.fifo.len() > 0 {
			n += p.wire.acknowledged()
		}
	}
	return n
}

// finish ends the session, if it has not ended. The peer is told why on every path.
func (c *Conn) finish(why error, tell string) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = why
	for _, p := range c.paths {
		p.pending = appendFrame(p.pending, frameClose, []byte(tell[:min(len(tell), 1000)]))
		p.last = true
		p.ackDue = true // the peer may wait for it
		p.wakeUp()
	}
	close(c.done)
	c.mu.Unlock()
	c.onFinish()
	time.AfterFunc(2*closeWait, c.cut) // a path that is full takes no farewell
}

// reason is why the session has ended; nil: it has not.
func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// takeFarewell ends the session, as the peer has. Once both ends know that it is over, what is still on its way, on slower paths, is of no use:
// the end that said so first cuts them when it is answered, or when the peer closes a path, for the answer may be behind all that is in another's
// queue; the other one when the path of its answer is closed.
func (c *Conn) takeFarewell(why string) {
	c.mu.Lock()
	over := c.err != nil
	c.farewell = true
	c.mu.Unlock()
	if over {
		c.cut()
		return
	}
	c.finish(closedByPeer(why), "")
}

// cut closes paths at once.
func (c *Conn) cut() {
	c.mu.Lock()
	var rest []*path
	for _, p := range c.paths {
		rest = append(rest, p)
	}
	c.mu.Unlock()
	for _, p := range rest {
		p.end(net.ErrClosed)
	}
}

func closedByPeer(why string) error {
	if why == "" {
		return ErrClosedByPeer
	}
	return fmt.Errorf("%w: %s", ErrClosedByPeer, printable.Text(why))
}

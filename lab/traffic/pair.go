package traffic

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// readBytes is the size of receive buffers: one read takes what arrived meanwhile. A download may have 1000 of them.
const readBytes = 64 << 10

// writeBytes is how much goes into one write, and into one message of SCTP.
const writeBytes = 64 << 10

// receive reads to the end of the stream and reports each read, with the time at which it returned, to the meter and to
// arrived, until arrived says that this was all. What is read after the application's stop does not count.
func (r *run) receive(from io.Reader, arrived func(at time.Duration, n int) (done bool)) error {
	buf := make([]byte, readBytes)
	for {
		n, err := from.Read(buf)
		at := r.since()
		if r.stop > 0 && at > r.stop {
			return nil
		}
		r.meter.add(at, n)
		if n > 0 && arrived(at, n) {
			return nil
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pair is one connection, seen from both sides.
type pair struct {
	sender, receiver net.Conn
	// listener stays open as long as the connection: further subflows of MPTCP need it.
	listener net.Listener
	// connectTook is how long the receiver's connect(2) took.
	connectTook time.Duration
}

// connect connects the receiver to the sender once.
func (r *run) connect(ctx context.Context) (*pair, error) {
	l, err := r.listen()
	if err != nil {
		return nil, err
	}
	receiver, took, err := r.dial(ctx)
	if err != nil {
		l.Close()
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	sender, err := l.Accept()
	if err != nil {
		l.Close()
		receiver.Close()
		return nil, fmt.Errorf("accept on %s port %d at %s: %w", r.ends.From, r.ends.Port, r.ends.FromNS, err)
	}
	return &pair{sender: sender, receiver: receiver, listener: l, connectTook: took}, nil
}

func (p *pair) close() {
	p.sender.Close()
	p.receiver.Close()
	p.listener.Close()
}

// both runs the two sides until both are done. The first error, or the end of ctx, cuts the connection and is returned.
func (p *pair) both(ctx context.Context, send func(context.Context) error, receive func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		_ = p.sender.SetDeadline(time.Unix(1, 0))
		_ = p.receiver.SetDeadline(time.Unix(1, 0))
	})()
	var sides sync.WaitGroup
	sides.Go(func() {
		if err := send(ctx); err != nil {
			cancel(err)
		}
	})
	sides.Go(func() {
		if err := receive(); err != nil {
			cancel(err)
		}
	})
	sides.Wait()
	return context.Cause(ctx)
}

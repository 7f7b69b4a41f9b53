package stripe

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"plait.dev/plait/stripe/internal/printable"
)

// unknownSession is what a listener answers to a dialer that joins what is no more.
const unknownSession = "no such session"

// join makes a path of a wire, and has it take the place of another one if there is one.
func (d *dialer) join(ctx context.Context, w *opened, t try, between pair, old *path) (*path, error) {
	key, err := peerKey(w.tls)
	if err != nil {
		w.Close()
		return nil, err
	}
	if err := d.one(key); err != nil {
		w.Close()
		return nil, fmt.Errorf("%v to %v: %w", t.from.addr, t.to, err)
	}
	d.mu.Lock()
	d.paths++
	h := hello{Version: version, Session: d.c.id[:], Create: !d.created, Path: d.paths, Policy: d.cfg.Links[between.link], Link: between.link, To: between.to}
	d.mu.Unlock()
	if old != nil {
		h.Replaces = old.id
	}
	stop := context.AfterFunc(ctx, func() { _ = w.SetDeadline(time.Unix(1, 0)) })
	there, err := greet(w, h)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		w.Close()
		if errors.Is(err, ErrClosedByPeer) && !h.Create {
			d.c.finish(err, "")
		}
		return nil, d.cfg.Carrier.explain(t.to, fmt.Errorf("%v to %v: %w", t.from.addr, t.to, err))
	}
	own := h.Policy
	h.To, h.Policy = there.Link, there.Policy
	p, err := d.c.attach(w.wire, h, own, w.rtt)
	if err != nil {
		w.Close()
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.created = true
	return p, nil
}

// one has all paths lead to one host, the first that answers. Addresses of private networks are the same in many of them, and both hosts may be among Config.Peers.
func (d *dialer) one(key PublicKey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.c.peerKey == (PublicKey{}) {
		d.c.peerKey = key
	}
	if d.c.peerKey != key {
		return fmt.Errorf("this address leads to another host than the connection is with: its key is %v, not %v", key, d.c.peerKey)
	}
	return nil
}

// greet says hello and waits for the answer.
func greet(w wire, h hello) (there welcome, err error) {
	if _, err := w.Write(appendJSON(nil, frameHello, h)); err != nil {
		return there, refused(err)
	}
	f, err := readFrame(w, make([]byte, maxFrame))
	switch {
	case err != nil:
		return there, refused(err)
	case f.kind == frameWelcome:
		return readWelcome(f.body)
	case f.kind == frameClose && string(f.body) == unknownSession:
		return there, closedByPeer(unknownSession)
	case f.kind == frameClose:
		return there, fmt.Errorf("the peer refuses: %s", printable.Text(string(f.body)))
	}
	return there, fmt.Errorf("peer answers hello with frame %d", f.kind)
}

// refused says so if the peer has refused what this end said last in the handshake. With QUIC that may show wherever the connection is used next. For alerts over TCP crypto/tls has no type.
func refused(err error) error {
	var op *net.OpError
	if errors.As(err, new(tls.AlertError)) || errors.As(err, &op) && op.Op == "remote error" {
		return fmt.Errorf("the peer does not accept this end's key: %w", err)
	}
	return err
}

// readWelcome reads a listener's answer and checks it.
func readWelcome(body []byte) (there welcome, err error) {
	if err := json.Unmarshal(body, &there); err != nil {
		return there, fmt.Errorf("welcome: %w", err)
	}
	if there.Link == "" || len(there.Link) > 64 {
		return there, errors.New("welcome is out of range")
	}
	there.Link = printable.Text(there.Link)
	return there, there.Policy.Validate()
}

// readHello reads a dialer's hello and checks it.
func readHello(w wire) (hello, error) {
	f, err := readFrame(w, make([]byte, maxFrame))
	if err != nil {
		return hello{}, err
	}
	var h hello
	if f.kind != frameHello {
		return h, fmt.Errorf("peer begins with frame %d", f.kind)
	}
	if err := json.Unmarshal(f.body, &h); err != nil {
		return h, fmt.Errorf("hello: %w", err)
	}
	switch {
	case h.Version != version:
		return h, fmt.Errorf("this end speaks version %d of the protocol, not %d; use the same release of plait at both ends", version, h.Version)
	case len(h.Session) != 16 || h.Path == 0 || len(h.Link) > 64 || len(h.To) > maxName:
		return h, errors.New("hello is out of range")
	}
	h.Link = printable.Text(h.Link)
	return h, h.Policy.Validate()
}

package ssh

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"plait.dev/plait/stripe"
)

// Handler does the far side's work on a connection.
type Handler struct {
	One  func(c *stripe.Conn, run string, first []byte) error // with Options.Run and First of the near side
	Many func(c net.Conn)                                     // for each of many connections
}

// Serve is the far side: it answers on out what came on in, and handles the connection, or connections. It returns when that is
// done, or in has ended before there was one.
func Serve(in io.Reader, out io.Writer, handle Handler) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // ssh may end first; what is said to it then must not end this process
	r := bufio.NewReader(in)
	var o offer
	if err := receive(r, &o, maxText); err != nil {
		return fmt.Errorf("stripe serve: no key on standard input: %w; plait cp and plait pipe start this by ssh", err)
	}
	key := stripe.NewKey()
	cfg := &stripe.Config{Key: key, Peers: []stripe.PublicKey{o.Key}, Links: o.Links, Carrier: o.Carrier}
	if !o.Many {
		cfg.MaxConns = 1
	}
	links, err := stripe.Links()
	if err != nil {
		return send(out, answer{Error: err.Error()})
	}
	if err := checkLinks("far link", o.Links, links); err != nil {
		return send(out, answer{Error: err.Error(), NoLink: true})
	}
	l, err := stripe.Listen(cfg, cmp.Or(o.Listen, ":0"))
	if err != nil {
		return send(out, answer{Error: err.Error() + remedy(err)})
	}
	defer l.Close()
	if err := send(out, answer{Key: key.Public(), Peers: l.Peers(), Carrier: o.Carrier, First: true, Others: others(o.Links, links)}); err != nil {
		return err
	}
	orphaned := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, r); close(orphaned) }()
	if o.Many {
		return serveMany(l, orphaned, handle.Many)
	}
	return serveOne(l, orphaned, func(c *stripe.Conn) error { return handle.One(c, string(o.Run), o.First) })
}

// remedy is what to do where this host cannot listen at the address that was asked for.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "; another copy has that port, or one that was interrupted: its end there (plait stripe serve) gives up within 4 minutes. Wait for that, or choose another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "; the far side itself has no such address: choose the port alone, such as --listen :7788"
	case errors.Is(err, syscall.EACCES):
		return "; choose a port from 1024 on"
	}
	return ""
}

// others are the addresses of links that are not among those named, if any are.
func others(named map[string]stripe.Policy, links []stripe.Link) (out []netip.Addr) {
	for _, l := range links {
		if _, ok := named[l.Name]; !ok && len(named) > 0 {
			for _, a := range l.Addrs {
				out = append(out, a.Addr())
			}
		}
	}
	return out
}

// serveOne waits for one connection.
func serveOne(l *stripe.Listener, orphaned <-chan struct{}, handle func(*stripe.Conn) error) error {
	accepted := make(chan struct{})
	go func() {
		select {
		case <-orphaned:
			l.Close()
		case <-time.After(startTime):
			l.Close()
		case <-accepted:
		}
	}()
	c, err := l.Accept()
	if err != nil {
		select {
		case <-orphaned: // the near side says why itself
			return nil
		default:
			return errors.New("stripe serve: the near side has not connected")
		}
	}
	close(accepted)
	return handle(c.(*stripe.Conn))
}

// serveMany takes connections until ssh has ended and none is left: a near side that wants to go on keeps one.
func serveMany(l *stripe.Listener, orphaned <-chan struct{}, handle func(net.Conn)) error {
	accepted, ended := make(chan *stripe.Conn), make(chan struct{})
	go func() {
		defer close(accepted)
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			accepted <- c.(*stripe.Conn)
		}
	}()
	alone := orphaned
	for conns := 0; conns > 0 || alone != nil; {
		select {
		case c, ok := <-accepted:
			if !ok {
				return nil
			}
			conns++
			go func() { handle(c); ended <- struct{}{} }()
		case <-ended:
			conns--
		case <-alone:
			alone = nil
		}
	}
	return nil
}

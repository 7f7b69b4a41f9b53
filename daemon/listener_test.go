package daemon

import (
	"context"
	"net"
	"testing"
	"time"

	"plait.dev/plait/bpf"
)

// listener is a server that asks for plait on its listening socket, which it does once, when it starts.
type listener struct {
	*host
	*net.TCPListener
}

func (h *host) listener() listener {
	h.Helper()
	var l net.Listener
	h.in(func() (err error) {
		c := net.ListenConfig{Control: chosen(bpf.Name)}
		l, err = c.Listen(context.Background(), "tcp", "127.0.0.1:0")
		return err
	})
	h.Cleanup(func() { l.Close() })
	return listener{h, l.(*net.TCPListener)}
}

// accepts makes a connection to it.
func (l listener) accepts() (c pair) {
	l.Helper()
	l.in(func() error {
		client, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			c.client = client.(*net.TCPConn)
		}
		return err
	})
	server, err := l.AcceptTCP()
	l.must(err)
	c.server = server
	l.host.Cleanup(c.close)
	return c
}

// What a server has asked for once holds for each plait that is up, whichever way the one before ended. What it accepts while none is up is on the system's default.
func TestListenerAsksOnce(t *testing.T) {
	for name, end := range map[string]func(*host, *process){
		"down":                     func(h *host, p *process) { _, err := p.Stop(t.Context()); h.must(err) },
		"kill":                     func(h *host, p *process) { p.kill(); h.cleanup(p); time.Sleep(stale) },
		"kill, without plait down": func(_ *host, p *process) { p.kill(); time.Sleep(stale) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p := h.up("  holdout_percent: 100") // those who ask have plait, and nobody else
			l := h.listener()
			h.uses("asked", l.accepts(), systemDefault, bpf.Name)
			end(h, p)
			between := l.accepts()
			h.uses("while none is up", between, systemDefault, systemDefault)
			h.transfers("while none is up", between)
			h.up("  holdout_percent: 100")
			next := l.accepts()
			h.uses("with the next one", next, systemDefault, bpf.Name)
			h.transfers("with the next one", next)
		})
	}
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	v4 "golang.org/x/net/ipv4"
	v6 "golang.org/x/net/ipv6"
)

// heardHello is a datagram, with the address of this host it came to and the interface it came in by.
type heardHello struct {
	from *net.UDPAddr
	to   net.IP
	link int
}

// helloPort is the port of hellos, of one family. An answer leaves from the address that was asked, which not every route would pick by itself.
type helloPort interface {
	read([]byte) (int, heardHello, error)
	write([]byte, heardHello) error
	Close() error
}

type helloPort4 struct{ *v4.PacketConn }

func (p helloPort4) read(b []byte) (int, heardHello, error) {
	n, c, from, err := p.ReadFrom(b)
	if err != nil || c == nil {
		return 0, heardHello{}, errors.Join(err, errors.New("without its destination"))
	}
	return n, heardHello{from.(*net.UDPAddr), c.Dst, c.IfIndex}, nil
}

func (p helloPort4) write(b []byte, h heardHello) error {
	_, err := p.WriteTo(b, &v4.ControlMessage{Src: h.to}, h.from)
	return err
}

type helloPort6 struct{ *v6.PacketConn }

func (p helloPort6) read(b []byte) (int, heardHello, error) {
	n, c, from, err := p.ReadFrom(b)
	if err != nil || c == nil {
		return 0, heardHello{}, errors.Join(err, errors.New("without its destination"))
	}
	return n, heardHello{from.(*net.UDPAddr), c.Dst, c.IfIndex}, nil
}

func (p helloPort6) write(b []byte, h heardHello) error {
	_, err := p.WriteTo(b, &v6.ControlMessage{Src: h.to}, h.from)
	return err
}

// openPorts listens for hellos on all addresses of this host; without IPv6 on those of IPv4.
func openPorts(port uint16) (ports []helloPort, err error) {
	address := fmt.Sprint(":", port)
	failed := func(err error) ([]helloPort, error) {
		do := "name another port as port in the section ackpath of both hosts, or end what has it and run plait reload"
		if errors.Is(err, syscall.EACCES) {
			do = "plait keeps no right to ports that only root has: name one from net.ipv4.ip_unprivileged_port_start (1024) on as port in the section ackpath of both hosts, and start plait again"
		}
		return nil, fmt.Errorf("listen for copied ACKs on UDP port %d: %w; %s", port, err, do)
	}
	c4, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp4", address)
	if err != nil {
		return failed(err)
	}
	p4 := v4.NewPacketConn(c4)
	if err := p4.SetControlMessage(v4.FlagDst|v4.FlagInterface, true); err != nil {
		c4.Close()
		return nil, fmt.Errorf("listen for copied ACKs: ask for the destination of hellos: %w", err)
	}
	ports = append(ports, helloPort4{p4})
	c6, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp6", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		c4.Close()
		return failed(err)
	}
	if err != nil {
		return ports, nil
	}
	p6 := v6.NewPacketConn(c6)
	if err := p6.SetControlMessage(v6.FlagDst|v6.FlagInterface, true); err != nil {
		c6.Close()
		return ports, nil
	}
	return append(ports, helloPort6{p6}), nil
}

// serve answers on a port until it is closed.
func (s *ackSender) serve(p helloPort) {
	b := make([]byte, 2048)
	for {
		n, h, err := p.read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		from, _ := netip.AddrFromSlice(h.from.IP)
		if answer := s.answer(time.Now(), from.Unmap(), h.link, b[:n]); answer != nil {
			_ = p.write(answer, h) // the next hello asks again
			s.watch()
		}
	}
}

// start listens, until close.
func (s *ackSender) start(port uint16) error {
	ports, err := openPorts(port)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = func() {
		cancel()
		for _, p := range ports {
			p.Close()
		}
	}
	for _, p := range ports {
		s.running.Go(func() { s.serve(p) })
	}
	s.running.Go(func() { s.expire(ctx) })
	return nil
}

package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	maxHops = 16 // as far as echo requests go; what is to be proven is one hop behind the SID
	rounds  = 3  // of the same requests: routers limit how often they answer (RFC 4443 section 2.4)
)

// patience for answers: the way round the world takes a third of it. Tests have less.
var patience = time.Second

// packet is an echo request.
type packet struct {
	to       netip.Addr
	hopLimit int
	size     int // bytes, of all of it
}

// answer is what came back, and from whom. packet is the request it is about, unless it is about an encapsulated one.
type answer struct {
	heard
	packet
	from netip.Addr
}

// prober sends echo requests from one address and hears what comes back to it, and to the tunnel source.
type prober struct {
	source  netip.Addr
	sockets []net.PacketConn
	echo    net.PacketConn           // among the sockets: ICMP from the source
	tunnel  net.PacketConn           // likewise: puts packets into IPv6 to a SID; nil: the kernel encapsulates what echo sends
	hops    func(hopLimit int) error // sets that of what echo sends
	id      int
	number  int // of the latest request, 16 bits
	answers chan answer
}

// wholePackets keeps the kernel from fragmenting, and from remembering how big a packet may be.
func wholePackets(network, _ string, raw syscall.RawConn) (err error) {
	level, option, value := syscall.IPPROTO_IPV6, syscall.IPV6_MTU_DISCOVER, syscall.IPV6_PMTUDISC_PROBE
	if network[:3] == "ip4" {
		level, option, value = syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_PROBE
	}
	if control := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), level, option, value) }); control != nil {
		return control
	}
	return err
}

// newProber probes from an address of this host. tunnelSource is the one encapsulated packets come from. If encapsulate, the prober does that by itself, for a host
// whose kernel does not: without SRH, as it may for a single segment (RFC 8986 section 5.2).
func newProber(ctx context.Context, source, tunnelSource netip.Addr, encapsulate bool) (*prober, error) {
	p := &prober{source: source, id: rand.IntN(1 << 16), answers: make(chan answer, 4096)}
	open := func(network string, at netip.Addr) (net.PacketConn, error) {
		c, err := (&net.ListenConfig{Control: wholePackets}).ListenPacket(ctx, network, at.String())
		if err != nil {
			return nil, fmt.Errorf("send echo requests from %v: %w; this needs root or the capability CAP_NET_RAW", at, err)
		}
		p.sockets = append(p.sockets, c)
		return c, nil
	}
	network := "ip6:ipv6-icmp"
	if source.Is4() {
		network = "ip4:icmp"
	}
	var err error
	if p.echo, err = open(network, source); err == nil && source != tunnelSource {
		_, err = open("ip6:ipv6-icmp", tunnelSource)
	}
	for _, c := range p.sockets {
		go p.runListen(c, c == p.echo && source.Is4())
	}
	if err == nil && encapsulate {
		p.tunnel, err = open(fmt.Sprint("ip6:", protocolIPv6), source)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	p.hops = ipv6.NewPacketConn(p.echo).SetHopLimit
	if source.Is4() {
		p.hops = ipv4.NewPacketConn(p.echo).SetTTL
	}
	return p, nil
}

func (p *prober) close() {
	for _, c := range p.sockets {
		c.Close()
	}
}

// runListen hears ICMP until the socket is closed.
func (p *prober) runListen(c net.PacketConn, is4 bool) {
	b := make([]byte, 2048)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		h := read(b[:n], is4)
		a, ok := netip.AddrFromSlice(from.(*net.IPAddr).IP)
		if h.kind == nothing || !ok {
			continue
		}
		select {
		case p.answers <- answer{heard: h, from: a.Unmap()}:
		default: // a flood; the answers meant are asked for again
		}
	}
}

// send sends a request and returns its number.
func (p *prober) send(sid netip.Addr, k packet) (int, error) {
	p.number = (p.number + 1) & 0xffff
	b, err := request(p.source, k.to, p.id, p.number, k.size)
	if err != nil {
		return 0, err
	}
	if p.tunnel != nil {
		_, err = p.tunnel.WriteTo(packet6(p.source, k.to, k.hopLimit, b), &net.IPAddr{IP: sid.AsSlice()})
	} else if err = p.hops(k.hopLimit); err == nil {
		_, err = p.echo.WriteTo(b, &net.IPAddr{IP: k.to.AsSlice()})
	}
	if err != nil {
		return 0, fmt.Errorf("send %d bytes from %v to %v: %w", k.size, p.source, k.to, err)
	}
	return p.number, nil
}

// ask sends requests that should take the way over a SID, and returns all that comes back in time, or until there is enough: about them, those asked before that are in mine, and encapsulated packets
// to the SID.
func (p *prober) ask(ctx context.Context, sid netip.Addr, mine map[int]packet, packets []packet, enough func(answer) bool) (answers []answer, err error) {
	for _, k := range packets {
		number, err := p.send(sid, k)
		if err != nil {
			return nil, err
		}
		mine[number] = k
	}
	late := time.After(patience)
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-late:
			return answers, nil
		case a := <-p.answers:
			k, known := mine[a.number]
			switch {
			case a.outer && a.about == sid:
				if known && a.id == p.id {
					a.packet = k
				}
				answers = append(answers, a)
			case a.outer || !known || a.id != p.id || a.kind == reply && a.from != k.to || a.kind != reply && a.about != k.to:
			default:
				a.packet = k
				answers = append(answers, a)
				if enough(a) {
					return answers, nil
				}
			}
		}
	}
}

// trace asks for answers from behind a SID, hop by hop, until there is proof that packets get on from there, or no more hope.
func (p *prober) trace(ctx context.Context, sid netip.Addr, targets []netip.Addr) (t trace, err error) {
	var packets []packet
	for hopLimit := 1; hopLimit <= maxHops; hopLimit++ {
		for _, to := range targets {
			packets = append(packets, packet{to, hopLimit, smallPacket})
		}
	}
	mine := map[int]packet{}
	for range rounds {
		answers, err := p.ask(ctx, sid, mine, packets, func(a answer) bool { return a.kind == reply })
		t = append(t, answers...)
		if err != nil || t.forwarded() {
			return t, err
		}
	}
	if len(t.inside()) == 0 { // a router that looks for a neighbour in vain says so after three seconds (RFC 4861 section 7.2.2)
		late, err := p.ask(ctx, sid, mine, nil, func(answer) bool { return false })
		return append(t, late...), err
	}
	return t, nil
}

// full asks the same way as a small packet was answered, with a big one.
func (p *prober) full(ctx context.Context, sid netip.Addr, like packet, size int) (t trace, err error) {
	like.size = size
	for range rounds {
		answers, err := p.ask(ctx, sid, map[int]packet{}, []packet{like}, func(answer) bool { return true })
		t = append(t, answers...)
		if err != nil || len(t.inside()) > 0 {
			return t, err
		}
	}
	return t, nil
}

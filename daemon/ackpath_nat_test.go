package daemon

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// translator is a NAT: to the server the client has another address on a link, and higher ports.
type translator struct{ inside, outside netip.Addr }

const portShift = 1000

// out and back change a packet of IPv4 on its way; they lose none.
func (n translator) out(b []byte) bool  { return n.change(b, 12, 0, n.inside, n.outside, portShift) }
func (n translator) back(b []byte) bool { return n.change(b, 16, 2, n.outside, n.inside, -portShift) }

func (n translator) change(b []byte, address, port int, from, to netip.Addr, shift int) bool {
	order := binary.BigEndian
	if b[0] != 0x45 || netip.AddrFrom4([4]byte(b[address:])) != from || b[9] != protocolTCP && b[9] != protocolUDP {
		return false
	}
	check := 20 + map[byte]int{protocolTCP: 16, protocolUDP: 6}[b[9]]
	replace := func(at int, word uint16) { // RFC 1624
		old := order.Uint16(b[at:])
		order.PutUint16(b[at:], word)
		for _, c := range []int{10, check} {
			if c == 10 && at >= 20 || b[9] == protocolUDP && c == check && order.Uint16(b[check:]) == 0 {
				continue
			}
			s := uint32(^order.Uint16(b[c:])) + uint32(^old) + uint32(word)
			s = s&0xffff + s>>16
			order.PutUint16(b[c:], ^uint16(s&0xffff+s>>16))
		}
	}
	a := to.As4()
	replace(address, order.Uint16(a[:]))
	replace(address+2, order.Uint16(a[2:]))
	replace(20+port, uint16(int(order.Uint16(b[20+port:]))+shift))
	return false
}

// Behind a NAT on each link, as at home and with a provider of mobile networks, copies come from an address that the sender knows, and are of a flow it knows.
func TestAckpathNAT(t *testing.T) {
	h := newHost(t)
	a := &ackHosts{host: h, client: h.second("-client"), shift: portShift}
	slow := translator{netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("10.2.0.77")}
	quick := translator{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.0.78")}
	a.carry("slow", unix.IFF_TUN, slowDelay, slow.out, slow.back)
	a.carry("quick", unix.IFF_TUN, 0, quick.out, quick.back)
	a.configure(true)
	server, client := a.up("  holdout_percent: 0"), a.receiver("mode: on, ratio: 1")
	p, quiet := a.download()
	f := a.copies("behind a NAT", client)
	s, err := server.Ackpath("")
	h.must(err)
	if len(s.Taken) != 1 || s.Taken[0].Remote != netip.AddrPortFrom(slow.outside, f.Local.Port()+portShift) || s.Taken[0].From != quick.outside {
		t.Errorf("the server takes %+v, want copies of %v, behind %v, from %v", s.Taken, f.Local, slow.outside, quick.outside)
	}
	if n := a.counter("TcpInCsumErrors"); n != 0 {
		t.Errorf("%d segments had a wrong checksum", n)
	}
	quiet()
	a.over(p, server, client)
}

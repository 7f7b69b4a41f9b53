package measure

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// diagMessage makes an inet_diag message of an established IPv6 socket.
func diagMessage(local, remote netip.AddrPort, cookie uint64, info unix.TCPInfo, flags, token uint32) []byte {
	msg := make([]byte, sizeofInetDiagMsg)
	msg[0], msg[1] = unix.AF_INET6, tcpEstablished
	binary.BigEndian.PutUint16(msg[4:], local.Port())
	binary.BigEndian.PutUint16(msg[6:], remote.Port())
	copy(msg[8:], local.Addr().AsSlice())
	copy(msg[24:], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(msg[44:], cookie)
	ulp := attr(inetULPMPTCP|unix.NLA_F_NESTED, slices.Concat(attr(mptcpSubflowTokenLoc, u32(token)), attr(mptcpSubflowFlags, u32(flags))))
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))
	return slices.Concat(msg, attr(inetDiagULPInfo|unix.NLA_F_NESTED, ulp), attr(inetDiagInfo, raw))
}

func TestParseDiag(t *testing.T) {
	local, remote := netip.MustParseAddrPort("[2001:db8:1::a]:5001"), netip.MustParseAddrPort("[2001:db8:c::2]:40000")
	msg := diagMessage(local, remote, 1<<40|7,
		unix.TCPInfo{Unacked: 20, Sacked: 5, Lost: 3, Retrans: 2, Rtt: 50123, Snd_ssthresh: 12, Snd_cwnd: 14, Bytes_acked: 1 << 33}, mptcpFlagJoinRem, 99)
	d, err := parseDiag(msg)
	if err != nil {
		t.Fatal(err)
	}
	if l, r := d.ends(); l != local || r != remote || d.cookie != 1<<40|7 || d.state != tcpEstablished {
		t.Errorf("%v %v cookie %x state %d", l, r, d.cookie, d.state)
	}
	if d.inflight() != 20-5-3+2 || d.rttUS != 50123 || d.ssthresh != 12 || d.cwnd != 14 || d.bytesAcked != 1<<33 || !d.subflow || d.token != 99 {
		t.Errorf("%+v", d)
	}
	// A closed socket in FIN_WAIT_2 keeps its cookie and loses its counters, which are not 0 because of that.
	if rest, err := parseDiag(msg[:sizeofInetDiagMsg]); err != nil || rest.counted || !d.counted {
		t.Errorf("counted: %v, and without tcp_info %v (%v)", d.counted, rest.counted, err)
	}
	// Only MCAP_LOC: we asked for MPTCP, the peer did not.
	if d, _ := parseDiag(diagMessage(local, remote, 1, unix.TCPInfo{}, 1<<1, 99)); d.subflow {
		t.Error("a connection that fell back counts as a subflow")
	}
	if _, _, err := diagPorts(msg[:sizeofInetDiagMsg-1]); err == nil {
		t.Error("a short message was accepted")
	}
	short := append(slices.Clone(msg[:sizeofInetDiagMsg]), attr(inetDiagInfo, make([]byte, 100))...)
	if _, err := parseDiag(short); err == nil {
		t.Error("a short tcp_info was accepted")
	}
}

func TestParseDiagAllocatesNothing(t *testing.T) {
	end := netip.MustParseAddrPort("[2001:db8::1]:1")
	msg := diagMessage(end, end, 1, unix.TCPInfo{}, 0, 0)
	var d diag
	if n := testing.AllocsPerRun(100, func() { d, _ = parseDiag(msg) }); n != 0 {
		t.Errorf("%v allocations per socket and sample", n)
	}
	_ = d
}

// BenchmarkParseDiag is the part of a sample that grows with the number of sockets, without the kernel's own.
func BenchmarkParseDiag(b *testing.B) {
	end := netip.MustParseAddrPort("[2001:db8::1]:1")
	msg := diagMessage(end, end, 1, unix.TCPInfo{}, mptcpFlagMCapRem, 1)
	for b.Loop() {
		_, _ = parseDiag(msg)
	}
}

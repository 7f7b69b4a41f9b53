package daemon

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// counting is a program that counts the packets it sees, and does nothing with them.
func (h *host) counting() (p *ebpf.Program, seen func() uint64) {
	h.Helper()
	count, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	h.must(err)
	h.Cleanup(func() { count.Close() })
	p, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, count.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("next"),
		asm.Return(),
	}})
	h.must(err)
	h.Cleanup(func() { p.Close() })
	return p, func() (n uint64) {
		h.must(count.Lookup(uint32(0), &n))
		return n
	}
}

// Another's program at the slow link, that was there before, sees each packet once: what it does, translate or encapsulate, is not done twice to a native ACK.
func TestACKSeenOnceByOthers(t *testing.T) {
	h := newNamespace(t)
	far := h.second("-s")
	for _, name := range []string{"slow", "quick"} {
		h.ip(fmt.Sprintf("-n %s link add %s type veth peer name %s netns %s", h.ns, name, name, far.ns))
	}
	other, seen := h.counting()
	h.hook("slow", other, ebpf.AttachTCXEgress)
	wire, arrived := h.counting()
	far.hook("slow", wire, ebpf.AttachTCXIngress)
	newAckPair(h, far, "44").testCopies()
	if n, want := seen(), arrived(); n != want {
		t.Errorf("the other program saw %d packets, and %d were sent", n, want)
	}
}

// A queue between a bridge or VLAN and what that lies on has a native ACK pass there later, and by itself: it is the same, and has its copy.
func TestACKCopiedOnce(t *testing.T) {
	h := newNamespace(t)
	far := h.second("-s")
	for name, peer := range map[string]string{"port": "slow", "quick": "quick"} {
		h.ip(fmt.Sprintf("-n %s link add %s type veth peer name %s netns %s", h.ns, name, peer, far.ns))
	}
	h.ip("-n " + h.ns + " link add slow type bridge")
	h.ip("-n " + h.ns + " link set port master slow up")
	h.tool("tc -n " + h.ns + " qdisc add dev slow root tbf rate 400kbit burst 200 limit 100000")
	a := newAckPair(h, far, "44")
	h.hook("port", a.receiver.Programs[bpf.AcksProgPlaitAckSent], ebpf.AttachTCXEgress) // another subflow leaves by it
	for range 5 {
		go func() { _, _ = a.served.Write(make([]byte, 200<<10)) }()
		_, err := io.CopyN(io.Discard, a.conn, 200<<10)
		h.must(err)
	}
	var r bpf.AckRoute
	var l bpf.AckLead
	h.eventually(10*time.Second, "the natives are there", func() bool {
		before := l.Natives
		time.Sleep(200 * time.Millisecond)
		r, l = a.counted()
		return l.Natives == before && l.Natives > 10
	})
	if r.Copies != uint64(l.Natives) {
		t.Errorf("%d copies of %d ACKs", r.Copies, l.Natives)
	}
}

// The sender takes no ACK that has more headers than it needs: none is copied in vain.
func TestACKWithOptionsOfIPNotCopied(t *testing.T) {
	h := newNamespace(t)
	far := h.second("-s")
	for _, name := range []string{"slow", "quick"} {
		h.ip(fmt.Sprintf("-n %s link add %s type veth peer name %s netns %s", h.ns, name, name, far.ns))
	}
	a := newAckPair(h, far, "44")
	c, err := a.conn.(*net.TCPConn).SyscallConn()
	h.must(err)
	nothing := "\x01\x01\x01\x00"
	h.must(c.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), unix.IPPROTO_IP, unix.IP_OPTIONS, nothing) }))
	h.must(err)
	before, _ := a.counted()
	go func() { _, _ = a.served.Write(make([]byte, 1<<20)) }()
	_, err = io.CopyN(io.Discard, a.conn, 1<<20)
	h.must(err)
	if after, l := a.counted(); after.Copies != before.Copies {
		t.Errorf("%d copies are made, and %d taken", after.Copies-before.Copies, l.Copies)
	}
}

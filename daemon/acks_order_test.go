package daemon

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
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

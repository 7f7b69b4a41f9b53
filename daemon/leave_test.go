package daemon

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"plait.dev/plait/bpf"
	"plait.dev/plait/lab/netns"
)

// paced is how many TCP sockets of the host's namespace have the kernel's pacing (sk_pacing_status) on.
func (h *host) paced(t *testing.T) (n int) {
	h.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "paced", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "tcp", License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord), // struct bpf_iter__tcp: meta, sk_common
			asm.JEq.Imm(asm.R1, 0, "end"),
			asm.FnSkcToTcpSock.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.LoadMem(asm.R1, asm.R0, kernelField(t, "sock", "sk_pacing_status"), asm.Word),
			asm.StoreMem(asm.RFP, -4, asm.R1, asm.Word),
			asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord),
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord), // struct bpf_iter_meta: seq
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.Mov.Imm(asm.R3, 4),
			asm.FnSeqWrite.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		},
	})
	h.must(err)
	defer p.Close()
	h.must(netns.Do(h.ns, func() error {
		it, err := link.AttachIter(link.IterOptions{Program: p})
		if err != nil {
			return err
		}
		defer it.Close()
		r, err := it.Open()
		if err != nil {
			return err
		}
		defer r.Close()
		all, err := io.ReadAll(r)
		for ; len(all) >= 4; all = all[4:] {
			if binary.NativeEndian.Uint32(all) != 0 {
				n++
			}
		}
		return err
	}))
	return n
}

// What leaves plait is as the system's default makes it, without the pacing that burst turns on.
func TestLeavesPacing(t *testing.T) {
	h := newHost(t)
	policy := takeAll + "\n  policy: fixed:burst"
	p := h.up(policy)
	c := h.connect(0, "")
	h.transfers("managed", c)
	if n := h.paced(t); n != 2 {
		t.Fatalf("%d ends are paced with burst, want 2", n)
	}
	h.reload(p, "  mode: off")
	h.uses("mode off", c, systemDefault, systemDefault)
	if n := h.paced(t); n != 0 {
		t.Errorf("%d ends are still paced after a reload", n)
	}
	h.reload(p, policy)
	h.uses("on again", c, bpf.Name, bpf.Name)
	_, err := p.Stop(t.Context())
	h.must(err)
	h.uses("after down", c, systemDefault, systemDefault)
	if n := h.paced(t); n != 0 {
		t.Errorf("%d ends are still paced after down", n)
	}
}

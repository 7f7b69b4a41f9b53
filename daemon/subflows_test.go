package daemon

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"plait.dev/plait/bpf"
)

// Subflows of MPTCP are taken with their first data: before that, the kernel gives them the congestion control of their connection.
func TestTakesSubflows(t *testing.T) {
	h := newHost(t)
	h.multipath = true
	p := h.up(takeAll)
	c := h.connect(0, "")
	h.transfers("an MPTCP connection", c)
	h.eventually(10*time.Second, "the sender's subflow is taken", func() bool {
		return slices.ContainsFunc(h.status(p).Sockets, func(s SocketStatus) bool { return s.Local.String() == c.server.LocalAddr().String() })
	})
	out, err := exec.Command("ip", "netns", "exec", h.ns, "ss", "-tniH", "state", "established").CombinedOutput()
	if err != nil || strings.Count(string(out), " "+bpf.Name+" ") != 1 || !strings.Contains(string(out), "tcp-ulp-mptcp") {
		t.Errorf("%v: want an MPTCP subflow with %s: %s", err, bpf.Name, out)
	}
}

// Another program on the cgroup may have asked for a callback in each round trip, too.
func TestSubflowsKeepCallbacks(t *testing.T) {
	h := newHost(t)
	h.multipath = true
	p := h.up(takeAll)
	const op, flags, active, passive, rtt, rttFlag = 0, 84, 4, 5, 12, 1 << 3 // struct bpf_sock_ops; include/uapi/linux/bpf.h
	calls, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	h.must(err)
	defer calls.Close()
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "other", Type: ebpf.SockOps, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R2, asm.R6, op, asm.Word),
			asm.JEq.Imm(asm.R2, rtt, "count"),
			asm.JEq.Imm(asm.R2, active, "ask"),
			asm.JNE.Imm(asm.R2, passive, "end"),
			asm.LoadMem(asm.R2, asm.R6, flags, asm.Word).WithSymbol("ask"),
			asm.Or.Imm(asm.R2, rttFlag),
			asm.FnSockOpsCbFlagsSet.Call(),
			asm.Ja.Label("end"),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word).WithSymbol("count"),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, calls.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("end"),
			asm.Return(),
		},
	})
	h.must(err)
	defer other.Close()
	l, err := link.AttachCgroup(link.CgroupOptions{Path: h.cgroup, Attach: ebpf.AttachCGroupSockOps, Program: other})
	h.must(err)
	defer l.Close()
	c := h.connect(0, "")
	count := func() (n uint64) {
		h.must(transfer(c, 64<<10))
		h.must(calls.Lookup(uint32(0), &n))
		return n
	}
	h.eventually(10*time.Second, "a subflow is taken", func() bool { count(); return h.status(p).Counters["attached"] > 0 })
	before := count()
	h.eventually(20*time.Second, "the other program is called", func() bool { return count() > before })
}

// Bursts of held-out subflows nobody sees begin, so those of managed ones would be compared with other connections.
func TestSubflowsAreNotCompared(t *testing.T) {
	h := newHost(t)
	h.multipath = true
	p := h.up(takeAll)
	c := h.connect(0, "")
	for range 5 {
		h.must(transfer(c, 1000))
		h.acknowledged(c.server)
	}
	if n, taken := h.bursts(p), h.status(p).Counters["attached"]; n != 0 || taken == 0 {
		t.Errorf("of %d connections taken %d bursts are compared, want none of subflows", taken, n)
	}
}

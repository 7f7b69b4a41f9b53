package daemon

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

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

// plait down also returns what a daemon that was killed has left and that has sent nothing since, in other namespaces, too.
func TestLeavesKilled(t *testing.T) {
	h := newHost(t)
	other := h.second("-2")
	policy := takeAll + "\n  policy: fixed:burst"
	p := h.up(policy)
	idle, receives, elsewhere, own := h.connect(0, ""), h.connect(0, ""), other.connect(0, ""), h.connect(0, otherChoice)
	h.transfers("managed", receives)
	p.kill()
	h.uses("killed", idle, bpf.Name, bpf.Name)
	if left := h.cleanup(p); left.Connections != 6 {
		t.Errorf("%d connections returned, want both ends of three", left.Connections)
	}
	for what, c := range map[string]pair{"idle": idle, "one end receives": receives, "of another namespace": elsewhere} {
		h.uses(what+", after down", c, systemDefault, systemDefault)
		h.transfers(what, c)
	}
	h.uses("chosen by the application", own, otherChoice, otherChoice)
	if n := h.paced(t); n != 0 {
		t.Errorf("%d ends are still paced after down", n)
	}
	h.clean("after down")
	if left := h.cleanup(p); left.Connections != 0 {
		t.Errorf("another plait down returned %d connections, want none", left.Connections)
	}
}

// An application that limits its rate has its limit kept when burst goes: it finds pacing on, and relies on that.
func TestLeavesOwnRate(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll + "\n  policy: fixed:burst")
	c := h.connect(0, "")
	raw, err := c.server.SyscallConn()
	h.must(err)
	h.must(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, 1<<20) }))
	h.must(err)
	h.reload(p, takeAll+"\n  policy: fixed:cubic")
	h.sends(c, 1000)
	h.sends(pair{c.server, c.client}, 1000)
	if n := h.paced(t); n != 1 {
		t.Errorf("%d ends are paced after a change of algorithm, want the one that has a limit", n)
	}
	_, err = p.Stop(t.Context())
	h.must(err)
	if n := h.paced(t); n != 1 {
		t.Errorf("%d ends are paced after down, want the one that has a limit", n)
	}
}

// However a connection leaves, it is bounded to what its path has lately carried, and nothing widens its window after that.
func TestLeavesWindow(t *testing.T) {
	for name, c := range map[string]struct {
		hidden bool // only its sockets keep its namespace: no pass finds them, and it finds out by itself
		leave  func(*host, *process, pair)
	}{
		"by itself":     {true, func(h *host, p *process, _ pair) { h.reload(p, "  mode: off") }},
		"mode off":      {false, func(h *host, p *process, _ pair) { h.reload(p, "  mode: off") }},
		"down":          {false, func(h *host, p *process, _ pair) { _, err := p.Stop(t.Context()); h.must(err) }},
		"by its choice": {false, func(h *host, _ *process, c pair) { h.choose(c.server, systemDefault) }},
	} {
		t.Run(name, func(t *testing.T) { leavesWindow(newHost(t), c.hidden, c.leave) })
	}
}

func leavesWindow(h *host, hidden bool, leave func(*host, *process, pair)) {
	other := h.second("-2")
	h.ip("-n " + other.ns + " link set lo mtu 1500")
	p := h.up(takeAll + "\n  policy: fixed:burst")
	c := other.connect(0, "")
	if hidden {
		h.ip("netns del " + other.ns)
	}
	at := 0
	sends := func(n int) {
		received := make(chan error, 1)
		go func() { received <- receive(c.client, at, n) }() // meanwhile, for sockets may have no room for all of it
		h.must(send(c.server, at, n))
		h.must(<-received)
		at += n
		h.acknowledged(c.server)
	}
	for range 3 {
		sends(200 << 10) // from which burst learns the rate
	}
	for range 20 {
		sends(1000)
	}
	if n := h.window(c.server); n <= 10 {
		h.Fatalf("burst has a window of %d segments, want more than it could leave with", n)
	}
	leave(h, p, c)
	if hidden {
		sends(1000)
	}
	if _, server := h.congestion(c); server != systemDefault {
		h.Errorf("its end uses %s, want %s", server, systemDefault)
	}
	if n := h.window(c.server); n > 10 {
		h.Errorf("it left with a window of %d segments, want 10: its last bursts had no more", n)
	}
}

// choose is an application that changes its mind about a connection that stands.
func (h *host) choose(c *net.TCPConn, name string) {
	h.Helper()
	raw, err := c.SyscallConn()
	h.must(err)
	h.must(chosen(name)("", "", raw))
}

// info is what the kernel says of a socket.
func (h *host) info(c *net.TCPConn) (info *unix.TCPInfo) {
	h.Helper()
	raw, err := c.SyscallConn()
	h.must(err)
	h.must(raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }))
	h.must(err)
	return info
}

// acknowledged waits until nothing that a socket has sent is on the way.
func (h *host) acknowledged(c *net.TCPConn) {
	h.Helper()
	h.eventually(10*time.Second, "all is acknowledged", func() bool { return h.info(c).Unacked == 0 })
}

// window is the congestion window in segments.
func (h *host) window(c *net.TCPConn) uint32 { return h.info(c).Snd_cwnd }

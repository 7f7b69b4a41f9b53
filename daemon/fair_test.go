package daemon

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// fairState is what leads found of the last subflow it saw under the fair control.
type fairState struct {
	Native, Shown    uint32 // windows, packets: the algorithm's and the socket's
	Delivered, SRTT8 uint32 // packets; us * 8
	Closed, _        uint32 // 1: its copies are to be timed only
}

// leads is an iterator over TCP sockets that tells the MPTCP subflows in its namespace that copies of their ACKs come lead sooner, as bpf/acks.bpf.c does, and
// reads what the fair control makes of it. User space cannot: a subflow has no file descriptor.
func (h *host) leads(natives, fairs *ebpf.Map, lead time.Duration) (tell func() fairState) {
	h.Helper()
	found, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: 1})
	h.must(err)
	h.Cleanup(func() { found.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "leads", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "tcp", License: "GPL",
		Instructions: h.leadInstructions(natives, fairs, found, lead),
	})
	h.must(err)
	h.Cleanup(func() { program.Close() })
	iterator, err := link.AttachIter(link.IterOptions{Program: program})
	h.must(err)
	h.Cleanup(func() { iterator.Close() })
	return func() (s fairState) {
		h.in(func() error {
			pass, err := iterator.Open()
			if err != nil {
				return err
			}
			defer pass.Close()
			_, err = pass.Read(make([]byte, 1)) // runs the program; it prints nothing
			if err != nil && err.Error() != "EOF" {
				return err
			}
			return found.Lookup(uint32(0), &s)
		})
		return s
	}
}

// R6 is the socket, R7 the storage at work; the stack holds a key at -16, what is found at -40, and what is told at -56.
func (h *host) leadInstructions(natives, fairs, found *ebpf.Map, lead time.Duration) asm.Instructions {
	h.Helper()
	fair := func(name string) int16 {
		spec, _, err := bpf.Load()
		h.must(err)
		offset, ok := fieldOffset(btf.UnderlyingType(spec.Maps["plait_fairs"].Value).(*btf.Struct).Members, name)
		if !ok {
			h.Fatalf("struct fair has no %s", name)
		}
		return int16(offset.Bytes())
	}
	tcp := func(name string) int16 { return kernelField(h, "tcp_sock", name) }
	const exit = "exit"
	return asm.Instructions{
		asm.LoadMem(asm.R1, asm.R1, 8, asm.DWord), // ctx->sk_common
		asm.JEq.Imm(asm.R1, 0, exit),
		asm.FnSkcToTcpSock.Call(),
		asm.JEq.Imm(asm.R0, 0, exit),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.LoadMem(asm.R1, asm.R6, tcp("is_mptcp"), asm.Byte),
		asm.JEq.Imm(asm.R1, 0, exit),
		asm.FnKtimeGetNs.Call(),
		asm.Div.Imm(asm.R0, 1000),
		asm.StoreMem(asm.RFP, -56, asm.R0, asm.DWord), // at_us
		asm.StoreImm(asm.RFP, -48, lead.Microseconds(), asm.Word),
		asm.LoadMapPtr(asm.R1, natives.FD()),
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Imm(asm.R4, 1), // BPF_SK_STORAGE_GET_F_CREATE
		asm.FnSkStorageGet.Call(),
		asm.JEq.Imm(asm.R0, 0, exit),
		asm.LoadMem(asm.R1, asm.RFP, -56, asm.DWord),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, -48, asm.Word),
		asm.StoreMem(asm.R0, 8, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.R0, 12, asm.Word),
		asm.StoreMem(asm.RFP, -24, asm.R1, asm.Word),
		asm.StoreImm(asm.RFP, -20, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, fairs.FD()),
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnSkStorageGet.Call(),
		asm.JEq.Imm(asm.R0, 0, exit),
		asm.LoadMem(asm.R1, asm.R0, fair("cwnd"), asm.Word),
		asm.StoreMem(asm.RFP, -40, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.R0, fair("shown_cwnd"), asm.Word),
		asm.StoreMem(asm.RFP, -36, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.R6, tcp("delivered"), asm.Word),
		asm.StoreMem(asm.RFP, -32, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.R6, tcp("srtt_us"), asm.Word),
		asm.StoreMem(asm.RFP, -28, asm.R1, asm.Word),
		asm.StoreImm(asm.RFP, -16, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, found.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -16),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -40),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(exit),
		asm.Return(),
	}
}

// newFair has a subflow beyond slow start whose ACKs come sooner, as far as plait knows. Slow start ends at about 500 packets, once in a while at thousands, which then
// are never the limit, or so soon (112) that the socket has a packet or two for its share, where a timeout can come of a delayed ACK: such a connection is left for another.
func newFair(t *testing.T, policy string, lead time.Duration) (h *host, c pair, tell func() fairState) {
	h = newHost(t)
	h.multipath = true
	h.ip("-n " + h.ns + " link set lo mtu 1500")
	h.in(func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_slow_start_after_idle", []byte("0"), 0) })
	c = h.connect(0, otherChoice)
	h.eventually(3*time.Minute, "CUBIC has ended slow start, in which growth may be faster, between 200 and 1,000 packets", func() bool {
		h.transfers("before plait", c)
		w := h.window(c.server)
		ended := w >= h.threshold(c.server)
		if w >= 1000 || ended && w < 200 {
			c = h.connect(0, otherChoice)
			return false
		}
		return ended
	})
	k := h.loaded(policy)
	h.in(func() error { return k.pass(passTake) })
	tell = h.leads(k.Maps["plait_ack_natives"], k.Maps["plait_fairs"], lead)
	tell()
	h.transfers("the lead is told", c)
	return h, c, tell
}

// Beyond slow start nothing is gained by copies, and they are closed out. BBR has no threshold of slow start, but knows what the path takes. A lead that is too short to
// correct for is of no use from the beginning.
func TestFairControlCloses(t *testing.T) {
	for _, f := range []struct {
		policy string
		lead   time.Duration
		enters bool
	}{{"fixed:reno", 40 * time.Millisecond, true}, {"fixed:bbr", 40 * time.Millisecond, true}, {"fixed:reno", time.Millisecond, false}} {
		t.Run(fmt.Sprintf("%s, %v", f.policy, f.lead), func(t *testing.T) {
			h, c, tell := newFair(t, f.policy, f.lead)
			var s fairState
			h.eventually(3*time.Minute, "copies are closed out", func() bool { // counted is time with ACKs, of which a busy machine has little: to BBR it is several seconds of transfers on an idle one
				h.transfers("under the fair control", c)
				s = tell()
				return s.Closed == 1
			})
			if f.enters != (s.Native > 0) {
				t.Fatalf("under the fair control: %v, want %v; %+v", s.Native > 0, f.enters, s)
			}
			if w := h.window(c.server); f.enters && f.policy == "fixed:reno" && w < s.Native/4 { // a loss or two may have been since; what it was given before is less
				t.Errorf("closed out, the window is %d packets, and not the algorithm's: %+v", w, s)
			}
		})
	}
}

// Who leaves plait has no copies from then on, and not until the receiver hears that nobody corrects for them. Its window is too small for the longer round trip, and may get back
// to the algorithm's by slow start.
func TestFairControlLeaves(t *testing.T) {
	h, c, tell := newFair(t, "fixed:reno", 200*time.Millisecond)
	s := tell()
	if s.Closed != 0 || s.Native == 0 {
		t.Fatalf("not under the fair control: %+v", s)
	}
	onSocket(h, c.server, func(fd int) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, otherChoice)
	})
	if left := tell(); left.Closed != 1 {
		t.Errorf("under %s: %+v, want copies closed out", otherChoice, left)
	}
	if threshold := h.threshold(c.server); threshold < s.Native {
		t.Errorf("under %s slow start ends at %d packets, and the algorithm's window was %d, the socket's %d", otherChoice, threshold, s.Native, s.Shown)
	}
}

// A subflow whose ACKs come sooner than by themselves grows as it would without: Reno by a packet for every window of the longer round trip, which is more than
// what is in flight. Its window is that share of the algorithm's. These come so much sooner that they are never closed out: what follows would be a timeout.
func TestFairControl(t *testing.T) {
	const lead = 200 * time.Millisecond
	h, c, tell := newFair(t, "fixed:reno", lead)
	before := tell()
	for range 5 { // on a busy host they take half a minute
		h.transfers("under the fair control", c)
		tell()
	}
	after := tell()
	t.Logf("before %+v, after %+v", before, after)
	if before.Native <= before.Shown {
		t.Fatalf("the subflow is not under the fair control: %+v", before)
	}
	grown := float64(after.Native)*float64(after.Native) - float64(before.Native)*float64(before.Native)
	if delivered := float64(after.Delivered - before.Delivered); grown/delivered > 4.2 || grown <= 0 {
		t.Errorf("the algorithm's window grew from %d to %d packets while %.0f were delivered: its square by %.2f a packet, want up to 2 as the window was the limit, and after a loss to 4", before.Native, after.Native, delivered, grown/delivered)
	}
	rtt := float64(after.SRTT8) / 8
	if want := float64(after.Native) * rtt / (rtt + float64(lead.Microseconds())); math.Abs(float64(after.Shown)-want) > 1+want/10 {
		t.Errorf("the socket's window is %d packets, want %.1f of %d at a round trip of %.0f us", after.Shown, want, after.Native, rtt)
	}
}

// threshold is ssthresh of a connection's first subflow, packets.
func (h *host) threshold(c *net.TCPConn) (packets uint32) {
	h.Helper()
	raw, err := c.SyscallConn()
	h.must(err)
	var info *unix.TCPInfo
	h.must(raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }))
	h.must(err)
	return info.Snd_ssthresh
}

// loaded is the kernel half without a daemon, with one policy for all connections of the host.
func (h *host) loaded(name string) (k *kernel) {
	h.Helper()
	var fallback [16]uint8
	copy(fallback[:], otherChoice)
	cgroup, err := cgroupID(h.cgroup)
	h.must(err)
	spec, linked, err := bpf.Load()
	h.must(err)
	p, err := compile(Lever{Mode: On, Policy: name})
	h.must(err)
	h.in(func() (err error) {
		k, err = loadKernel(spec, linked, bpf.Control{HeartbeatNs: monotonicNs(), StaleNs: uint64(time.Hour), SampleNs: uint64(time.Second), Fallback: fallback, Cgroup: cgroup})
		return err
	})
	h.Cleanup(func() { k.Close() })
	h.must(errors.Join(k.setPolicy(0, p.kernel), k.engage(h.cgroup)))
	return k
}

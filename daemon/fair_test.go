package daemon

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// fairState is what leads found of the last subflow it saw; but LeadUs and those of the least round trip only of one that was under the fair control, for there is one at each end.
type fairState struct {
	Native, Shown     uint32 // windows, packets: the algorithm's and the socket's
	Delivered, SRTT8  uint32 // packets; us * 8
	Closed, NativeUs  uint32 // 1: its copies are to be timed only; R when a lead was last heard of
	LeadUs, Least     uint32 // in use; the least round trip of the present window of bursts,
	LeastPast, Unused uint32 // and of the one before, us
}

// leastUs is the least round trip that plait goes by.
func (s fairState) leastUs() uint32 {
	if s.Least == 0 || s.LeastPast == 0 {
		return max(s.Least, s.LeastPast)
	}
	return min(s.Least, s.LeastPast)
}

// What leads tells.
type toldLead struct {
	LeadUs  uint32 // 0: nothing
	CopyFor uint32 // us to come in which copies are taken to have come; 0: it does not say
}

// leads is an iterator over TCP sockets that tells the MPTCP subflows in its namespace that copies of their ACKs come a lead sooner, as bpf/acks.bpf.c does, and
// reads what the fair control makes of it. User space cannot: a subflow has no file descriptor.
func (h *host) leads(k *kernel) (tell func(toldLead) fairState) {
	h.Helper()
	var maps [2]*ebpf.Map // found, and told
	for i, size := range []int{binary.Size(fairState{}), binary.Size(toldLead{})} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1})
		h.must(err)
		h.Cleanup(func() { m.Close() })
		maps[i] = m
	}
	found, told := maps[0], maps[1]
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "leads", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "tcp", License: "GPL",
		Instructions: h.leadInstructions(k, found, told),
	})
	h.must(err)
	h.Cleanup(func() { program.Close() })
	iterator, err := link.AttachIter(link.IterOptions{Program: program})
	h.must(err)
	h.Cleanup(func() { iterator.Close() })
	return func(t toldLead) (s fairState) {
		h.must(told.Put(uint32(0), &t))
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

// R6 is the socket, R7 what is found, R8 what is told; the stack holds a key at -16.
func (h *host) leadInstructions(k *kernel, found, told *ebpf.Map) asm.Instructions {
	h.Helper()
	spec, _, err := bpf.Load()
	h.must(err)
	field := func(of, name string) int16 {
		offset, ok := fieldOffset(btf.UnderlyingType(spec.Maps[of].Value).(*btf.Struct).Members, name)
		if !ok {
			h.Fatalf("the values of %s have no %s", of, name)
		}
		return int16(offset.Bytes())
	}
	const exit = "exit"
	lookup := func(m *ebpf.Map) asm.Instructions {
		return asm.Instructions{
			asm.StoreImm(asm.RFP, -16, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -16),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, exit),
		}
	}
	storage := func(name string, flags int32) asm.Instructions {
		return asm.Instructions{
			asm.LoadMapPtr(asm.R1, k.Maps[name].FD()),
			asm.Mov.Reg(asm.R2, asm.R6),
			asm.Mov.Imm(asm.R3, 0),
			asm.Mov.Imm(asm.R4, flags),
			asm.FnSkStorageGet.Call(),
			asm.JEq.Imm(asm.R0, 0, exit),
		}
	}
	note := func(from asm.Register, offset, at int16) asm.Instructions {
		return asm.Instructions{asm.LoadMem(asm.R1, from, offset, asm.Word), asm.StoreMem(asm.R7, at, asm.R1, asm.Word)}
	}
	tcp := func(name string) int16 { return kernelField(h, "tcp_sock", name) }
	return slices.Concat(asm.Instructions{
		asm.LoadMem(asm.R1, asm.R1, 8, asm.DWord), // ctx->sk_common
		asm.JEq.Imm(asm.R1, 0, exit),
		asm.FnSkcToTcpSock.Call(),
		asm.JEq.Imm(asm.R0, 0, exit),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.LoadMem(asm.R1, asm.R6, tcp("is_mptcp"), asm.Byte),
		asm.JEq.Imm(asm.R1, 0, exit),
	}, lookup(found), asm.Instructions{asm.Mov.Reg(asm.R7, asm.R0)}, lookup(told), asm.Instructions{asm.Mov.Reg(asm.R8, asm.R0)},
		storage("plait_ack_natives", 1), // BPF_SK_STORAGE_GET_F_CREATE
		asm.Instructions{
			asm.Mov.Reg(asm.R9, asm.R0),
			asm.FnKtimeGetNs.Call(),
			asm.Div.Imm(asm.R0, 1000),
			asm.LoadMem(asm.R1, asm.R8, 4, asm.Word),
			asm.JEq.Imm(asm.R1, 0, "no copies"),
			asm.Add.Reg(asm.R1, asm.R0),
			asm.StoreMem(asm.R9, field("plait_ack_natives", "copied_us"), asm.R1, asm.DWord),
			asm.LoadMem(asm.R1, asm.R8, 0, asm.Word).WithSymbol("no copies"),
			asm.JEq.Imm(asm.R1, 0, "told"),
			asm.StoreMem(asm.R9, field("plait_ack_natives", "lead_us"), asm.R1, asm.Word),
			asm.StoreMem(asm.R9, field("plait_ack_natives", "at_us"), asm.R0, asm.DWord),
			asm.Mov.Imm(asm.R1, 0).WithSymbol("told"),
		},
		storage("plait_socks", 0),
		note(asm.R0, field("plait_socks", "lead_us"), 24), note(asm.R0, field("plait_socks", "min_rtt_us"), 28), note(asm.R0, field("plait_socks", "min_rtt_past_us"), 32),
		storage("plait_fairs", 0),
		note(asm.R0, field("plait_fairs", "cwnd"), 0), note(asm.R0, field("plait_fairs", "shown_cwnd"), 4), note(asm.R0, field("plait_fairs", "native_us"), 20),
		note(asm.R9, field("plait_ack_natives", "closed"), 16), note(asm.R6, tcp("delivered"), 8), note(asm.R6, tcp("srtt_us"), 12),
		asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol(exit), asm.Return()})
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
	told := h.leads(k)
	tell = func() fairState { return told(toldLead{LeadUs: uint32(lead.Microseconds())}) }
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

// Who leaves while losses are repaired has half of the algorithm's window after that, too, and not of what the socket was given for it.
func TestFairControlLeavesInRecovery(t *testing.T) {
	for range 5 { // a busy machine may look when the repair is over
		before, after := leaveInRecovery(t)
		if before.Ca_state != caRecovery || after.Ca_state != caRecovery {
			continue
		}
		if want := 3 * before.Snd_ssthresh; after.Snd_ssthresh < want { // its round trip is a sixth to a fourth of what it is without copies
			t.Errorf("under %s the window after the repair will be %d packets, and before %d with copies; want %d or more", otherChoice, after.Snd_ssthresh, before.Snd_ssthresh, want)
		}
		return
	}
	t.Error("no connection left during a repair")
}

func leaveInRecovery(t *testing.T) (before, after *unix.TCPInfo) {
	h, c, tell := newFair(t, "fixed:reno", 200*time.Millisecond)
	tell()
	h.tool("tc -n " + h.ns + " qdisc add dev lo root tbf rate 8mbit burst 3000 limit 30000")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.transfers("through a short queue", c)
	}()
	h.eventually(time.Minute, "losses are repaired", func() bool { return h.info(c.server).Ca_state == caRecovery })
	before = h.info(c.server)
	onSocket(h, c.server, func(fd int) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, otherChoice)
	})
	after = h.info(c.server)
	<-ended
	return before, after
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
	return h.info(c).Snd_ssthresh
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

package daemon

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
)

// programs are those of plait's that have come into the kernel since the host was made. The kernel numbers them in order. Those of an earlier test may be there for
// another minute, with an MPTCP connection whose namespace is gone.
func (h *host) programs() (names []string) {
	h.Helper()
	for id := h.earlier; ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return names
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // gone meanwhile
		}
		if info, err := p.Info(); err == nil && strings.HasPrefix(info.Name, bpf.Name+"_") {
			names = append(names, info.Name)
		}
		p.Close()
	}
}

// unregistered is all of plait but the congestion control's table of functions: loading it touches no socket.
func unregistered(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	rung.Netns(t)
	spec, _, err := bpf.Load()
	if err != nil {
		t.Fatal(err)
	}
	delete(spec.Maps, bpf.Name)
	return spec
}

// The running kernel's verifier takes every program.
func TestPrograms(t *testing.T) {
	rung.Netns(t)
	all := unregistered(t)
	if len(all.Programs) < 12 {
		t.Errorf("only %d programs", len(all.Programs))
	}
	for name := range all.Programs {
		t.Run(name, func(t *testing.T) {
			if slices.Contains(tracing, name) {
				mayTrace(t)
			}
			spec := unregistered(t)
			spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
			c, err := ebpf.NewCollection(spec)
			if err != nil {
				t.Fatalf("%+v", err)
			}
			c.Close()
		})
	}
}

// mayTrace skips where no program may be put at the entry of kernel functions. What is tried is one that does nothing, so that a
// mistake in plait's is none of the reasons.
func mayTrace(t *testing.T) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "nothing", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "tcp_sendmsg_locked", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Skipf("this kernel refuses to trace its functions: %s", firstLine(err))
	}
	p.Close()
}

// kernelField is the offset of a field in a struct of the running kernel.
func kernelField(t testing.TB, in, name string) int16 {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var outer *btf.Struct
	if err := kernel.TypeByName(in, &outer); err != nil {
		t.Fatal(err)
	}
	if offset, ok := fieldOffset(outer.Members, name); ok {
		return int16(offset.Bytes())
	}
	t.Fatalf("struct %s has no %s", in, name)
	return 0
}

// fieldOffset looks in the groups of fields without a name too.
func fieldOffset(members []btf.Member, name string) (btf.Bits, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset, true
		}
		if inner, ok := btf.UnderlyingType(m.Type).(*btf.Struct); ok && m.Name == "" {
			if offset, ok := fieldOffset(inner.Members, name); ok {
				return m.Offset + offset, true
			}
		}
	}
	return 0, false
}

// congestionProgram is a function of a congestion control that begins with the socket in R1 and returns 2.
func congestionProgram(body ...asm.Instruction) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{
		Name: "refused", Type: ebpf.StructOps, AttachTo: "tcp_congestion_ops:ssthresh", License: "GPL",
		Instructions: slices.Concat(
			asm.Instructions{asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord)}, body, asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}),
	}
}

// What plait relies on the kernel to refuse, and the nearest thing it must take: if the kernel refused that too, the refusal
// would say nothing.
func TestKernelRefuses(t *testing.T) {
	rung.Netns(t)
	writes := func(field string) *ebpf.ProgramSpec {
		return congestionProgram(asm.StoreImm(asm.R1, kernelField(t, "tcp_sock", field), 10, asm.Word))
	}
	unlicensed := congestionProgram()
	unlicensed.License = "Proprietary"
	for name, c := range map[string]struct {
		refused, taken *ebpf.ProgramSpec
		says           string
	}{
		"cookie of a socket": { // which is why sockets that were there before plait have numbers of its own
			congestionProgram(asm.FnGetSocketCookie.Call()),
			congestionProgram(asm.FnKtimeGetNs.Call()),
			`(cannot use helper|unknown func) bpf_get_socket_cookie#46`,
		},
		"sequence numbers are not to be written": {writes("write_seq"), writes("snd_cwnd"), `no write support to tcp_sock at off \d+`},
		"license":                                {unlicensed, congestionProgram(), `must have a GPL compatible license`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := ebpf.NewProgram(c.taken)
			if err != nil {
				t.Fatalf("refused, but must be taken: %+v", err)
			}
			p.Close()
			p, err = ebpf.NewProgram(c.refused)
			if err == nil {
				p.Close()
				t.Fatal("taken, but must be refused")
			}
			var verifier *ebpf.VerifierError
			text := err.Error()
			if errors.As(err, &verifier) {
				text = strings.Join(verifier.Log, "\n")
			}
			if !regexp.MustCompile(c.says).MatchString(text) {
				t.Errorf("refused with %q, want %q in it", text, c.says)
			}
		})
	}
}

// The pass over all sockets by itself: connections that are there are taken, and given back with what they carry.
func TestExistingConnections(t *testing.T) {
	h := newHost(t)
	open, own := h.connect(0, ""), h.connect(0, otherChoice)
	var name [16]uint8
	copy(name[:], systemDefault)
	cgroup, err := cgroupID(h.cgroup)
	h.must(err)
	spec, linked, err := bpf.Load()
	h.must(err)
	h.in(func() error {
		k, err := loadKernel(spec, linked, bpf.Control{HeartbeatNs: monotonicNs(), StaleNs: uint64(time.Hour), SampleNs: uint64(time.Second), Fallback: name, Cgroup: cgroup})
		if err != nil {
			return err
		}
		defer k.Close()
		p, err := compile(Lever{Mode: On, Policy: defaultPolicy})
		if err != nil {
			return err
		}
		if err := errors.Join(k.setPolicy(0, p.kernel), k.engage(h.cgroup)); err != nil {
			return err
		}
		h.uses("before plait", open, systemDefault, systemDefault)
		if err := k.pass(passTake); err != nil {
			return err
		}
		h.uses("taken", open, bpf.Name, bpf.Name)
		h.uses("chosen by the application", own, otherChoice, otherChoice)
		h.transfers("taken", open)
		if err := k.pass(passRelease); err != nil {
			return err
		}
		h.uses("released", open, systemDefault, systemDefault)
		h.uses("chosen by the application", own, otherChoice, otherChoice)
		h.transfers("released", open)
		c, err := k.counters()
		if c.Attached != 2 || c.FellBack != 2 || c.Refused != 0 {
			h.Errorf("counters %+v, want 2 attached and 2 back", c)
		}
		return err
	})
	h.clean("after the end")
}

// A least round-trip time that the kernel does not know is none, and not 71 minutes.
func TestDecodeSample(t *testing.T) {
	raw := func(minRTTUs uint32) []byte {
		s := bpf.Sample{MinRttUs: minRTTUs, SrttUs: 7}
		return unsafe.Slice((*byte)(unsafe.Pointer(&s)), unsafe.Sizeof(s))
	}
	for in, want := range map[uint32]uint32{0: 0, 1: 1, 1<<32 - 1: 0} {
		if s, err := decodeSample(raw(in)); err != nil || s.MinRTTUs != want || s.SRTTUs != 7 {
			t.Errorf("%d is %+v, %v; want %d", in, s, err, want)
		}
	}
	if _, err := decodeSample(raw(1)[:8]); err == nil {
		t.Error("8 bytes are a sample")
	}
}

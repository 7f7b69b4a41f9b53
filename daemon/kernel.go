package daemon

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/signals"
)

// What a pass over all TCP sockets does (bpf/host.h).
const (
	passTake    uint32 = 1
	passRelease uint32 = 2
)

// available lists the congestion controls of the kernel, current is the system's default.
const (
	available = "/proc/sys/net/ipv4/tcp_available_congestion_control"
	current   = "/proc/sys/net/ipv4/tcp_congestion_control"
)

// kernel is what plait has put into the running kernel. All of it hangs on file descriptors of this process: when the process
// dies, the kernel takes programs and hooks away, and the sockets, which keep the congestion control until they notice, leave by
// themselves.
type kernel struct {
	*ebpf.Collection
	links   []io.Closer // in the order of attaching; undone in reverse
	hooked  io.Closer   // the hook of hook
	samples *ringbuf.Reader
	control bpf.Control
	linked  bool  // registration hangs on a link; before Linux 6.4 it is permanent and must be taken back
	tracing error // why bursts of held-out connections cannot be timed, if they cannot
}

// errTaken is why a second plait cannot come up.
var errTaken = fmt.Errorf("register congestion control %s: there is one already: another plait is up, or a kernel before 6.4 kept it; plait down removes it", bpf.Name)

// loadKernel loads the programs and registers the congestion control. No socket uses it yet.
func loadKernel(control bpf.Control) (k *kernel, err error) {
	_ = rlimit.RemoveMemlock() // before Linux 5.11 BPF memory counts against the limit; later it does no harm
	if registered() {
		return nil, errTaken
	}
	spec, linked, err := bpf.Load()
	if err != nil {
		return nil, err
	}
	k = &kernel{control: control, linked: linked}
	k.tracing = probeTracing()
	if k.tracing != nil {
		for _, name := range tracing {
			delete(spec.Programs, name)
		}
	}
	if err := spec.Variables["plait_daemon"].Set(control); err != nil {
		return nil, fmt.Errorf("set the control block: %w", err)
	}
	k.Collection, err = ebpf.NewCollection(spec)
	if errors.Is(err, unix.EEXIST) {
		return nil, errTaken // by one that came up meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("load programs into the kernel: %w", err)
	}
	loaded := k // what is returned with an error is nil
	defer func() {
		if err != nil {
			err = errors.Join(err, loaded.Close())
		}
	}()
	if linked {
		err := k.attach("congestion control")(link.AttachStructOps(link.StructOpsOptions{Map: k.Maps[bpf.Name]}))
		if errors.Is(err, unix.EEXIST) {
			return nil, errTaken
		}
		if err != nil {
			return nil, err
		}
	}
	if k.tracing == nil {
		for _, name := range tracing {
			if err := k.attach("tracing")(link.AttachTracing(link.TracingOptions{Program: k.Programs[name]})); err != nil {
				return nil, err
			}
		}
	}
	if k.samples, err = ringbuf.NewReader(k.Maps["plait_samples"]); err != nil {
		return nil, fmt.Errorf("open the ring buffer of samples: %w", err)
	}
	return k, nil
}

// attach remembers a link, or says what could not be attached.
func (k *kernel) attach(what string) func(link.Link, error) error {
	return func(l link.Link, err error) error {
		if err != nil {
			return fmt.Errorf("attach %s: %w", what, err)
		}
		k.links = append(k.links, l)
		return nil
	}
}

// registered says whether the congestion control is known to the kernel.
func registered() bool {
	names, _ := os.ReadFile(available)
	return slices.Contains(strings.Fields(string(names)), bpf.Name)
}

// tracing are the programs at the entry of kernel functions: they time the bursts of connections that plait does not control.
var tracing = []string{"plait_sendmsg", "plait_acked"}

// probeTracing tries whether programs may be put at the entry of kernel functions.
func probeTracing() error {
	spec, _, err := bpf.Load()
	if err != nil {
		return err
	}
	probe := &ebpf.CollectionSpec{Maps: spec.Maps, Programs: map[string]*ebpf.ProgramSpec{}, Types: spec.Types, ByteOrder: spec.ByteOrder, Variables: spec.Variables}
	for _, name := range tracing {
		probe.Programs[name] = spec.Programs[name]
	}
	delete(probe.Maps, bpf.Name)
	c, err := ebpf.NewCollection(probe)
	if err != nil {
		return err
	}
	c.Close()
	return nil
}

// hook makes the kernel offer every new connection of the processes in a cgroup (v2) and below to plait.
func (k *kernel) hook(cgroup string) error {
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupSockOps, Program: k.Programs["plait_sockops"]})
	if err != nil {
		return fmt.Errorf("attach to the connections of cgroup %s: %w", cgroup, err)
	}
	k.hooked = l
	return nil
}

// pass visits all TCP sockets of this network namespace.
func (k *kernel) pass(what uint32) error {
	if err := k.Variables["plait_pass"].Set(what); err != nil {
		return fmt.Errorf("set what the pass over all sockets does: %w", err)
	}
	it, err := link.AttachIter(link.IterOptions{Program: k.Programs["plait_sockets"]})
	if err != nil {
		return fmt.Errorf("attach the pass over all sockets: %w", err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return fmt.Errorf("open the pass over all sockets: %w", err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("pass over all sockets: %w", err)
	}
	return nil
}

// beat tells the kernel half that the daemon lives, and how often it wants samples.
func (k *kernel) beat(sampleEvery time.Duration) error {
	k.control.HeartbeatNs = monotonicNs()
	k.control.SampleNs = uint64(sampleEvery)
	if err := k.Variables["plait_daemon"].Set(k.control); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	return nil
}

func monotonicNs() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with a valid clock and pointer
	return uint64(t.Nano())
}

// unhook ends what offers new connections to plait.
func (k *kernel) unhook() error {
	if k.hooked == nil {
		return nil
	}
	defer func() { k.hooked = nil }()
	return k.hooked.Close()
}

// setRules replaces the ports and prefixes that have a policy of their own; rule i has policy i+1.
func (k *kernel) setRules(rules []Rule) error {
	ports, prefixes := map[uint32]uint32{}, map[prefixKey]uint32{}
	for i, r := range rules {
		for _, p := range r.Ports {
			ports[uint32(p)] = uint32(i + 1)
		}
		for _, p := range r.Prefixes {
			prefixes[keyOf(p)] = uint32(i + 1)
		}
	}
	if err := replace(k.Maps["plait_ports"], ports); err != nil {
		return fmt.Errorf("write rules by port: %w", err)
	}
	if err := replace(k.Maps["plait_prefixes"], prefixes); err != nil {
		return fmt.Errorf("write rules by prefix: %w", err)
	}
	return nil
}

// unmanaged is the policy of destinations that were given back to the system's default; the last of the kernel half's table.
const unmanaged = 63

// leave keeps new connections to a prefix on the system's default.
func (k *kernel) leave(p netip.Prefix) error {
	if err := k.setPolicy(unmanaged, bpf.Policy{}); err != nil {
		return err
	}
	if err := k.Maps["plait_prefixes"].Put(keyOf(p), uint32(unmanaged)); err != nil {
		return fmt.Errorf("leave %s to the system's default: %w", p, err)
	}
	return nil
}

// prefixKey is the key of the kernel half's longest-prefix match: IPv4 as mapped addresses.
type prefixKey struct {
	Bits    uint32
	Address [16]byte
}

func keyOf(p netip.Prefix) prefixKey {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return prefixKey{uint32(bits), p.Addr().As16()}
}

// replace makes a map hold exactly what is wanted. New entries come before old ones go, so that none is missing meanwhile.
func replace[K comparable](m *ebpf.Map, want map[K]uint32) error {
	for key, value := range want {
		if err := m.Put(key, value); err != nil {
			return err
		}
	}
	var key K
	var value uint32
	var old []K
	it := m.Iterate()
	for it.Next(&key, &value) {
		if _, ok := want[key]; !ok {
			old = append(old, key)
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	for _, key := range old {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

func (k *kernel) setPolicy(index uint32, p bpf.Policy) error {
	if err := k.Maps["plait_policies"].Put(index, p); err != nil {
		return fmt.Errorf("write policy %d: %w", index, err)
	}
	return nil
}

// choose sets the algorithms of one socket from its next round trip or burst on.
func (k *kernel) choose(cookie uint64, algorithm, bulk signals.Algorithm) error {
	if err := k.Maps["plait_choices"].Put(cookie, bpf.Choice{Algorithm: uint8(algorithm), Bulk: uint8(bulk)}); err != nil {
		return fmt.Errorf("write choice for socket %d: %w", cookie, err)
	}
	return nil
}

// forget removes what choose wrote.
func (k *kernel) forget(cookie uint64) {
	_ = k.Maps["plait_choices"].Delete(cookie) // absent is as wanted
}

// flow is the connection a sample is about.
type flow struct {
	Local, Remote netip.AddrPort
	Netns         uint32
}

// sample is what the kernel half said about a socket.
type sample struct {
	signals.Sample
	flow     flow
	policy   uint8
	observed bool // on the system's default; policies read it as CUBIC
	closed   bool
}

// read waits for the next sample. It returns os.ErrClosed after Close.
func (k *kernel) read() (sample, error) {
	record, err := k.samples.Read()
	if err != nil {
		if errors.Is(err, ringbuf.ErrClosed) {
			err = os.ErrClosed
		}
		return sample{}, fmt.Errorf("read samples: %w", err)
	}
	if len(record.RawSample) < int(unsafe.Sizeof(bpf.Sample{})) {
		return sample{}, fmt.Errorf("decode sample: it has %d bytes, want %d", len(record.RawSample), unsafe.Sizeof(bpf.Sample{}))
	}
	s := (*bpf.Sample)(unsafe.Pointer(unsafe.SliceData(record.RawSample))) // encoding/binary takes most of the daemon's time
	algorithm := signals.Algorithm(s.Algorithm)
	if s.Algorithm == toDefault {
		algorithm = signals.Cubic
	}
	return sample{
		Sample: signals.Sample{
			Cookie: s.Cookie, AtUs: s.AtUs, IntervalUs: s.IntervalUs, SRTTUs: s.SrttUs, MinRTTUs: s.MinRttUs,
			RateBps: s.RateBps, DispersionBps: s.DispersionBps, Delivered: s.Delivered,
			LostSingle: s.LostSingle, LostBurst: s.LostBurst, RTTAtLossUs: s.RttAtLossUs,
			SpuriousRecoveries: s.SpuriousRecoveries, IdleRestarts: s.IdleRestarts, Bursts: s.Bursts,
			BurstBytes: s.BurstBytes, BurstLatencyUs: s.BurstLatencyUs, CwndSegments: s.CwndSegments,
			SsthreshSegments: s.SsthreshSegments, MSS: s.MssBytes, Algorithm: algorithm, Bulk: s.Bulk != 0,
		},
		flow: flow{
			Local:  netip.AddrPortFrom(netip.AddrFrom16(s.Flow.Local).Unmap(), s.Flow.LocalPort),
			Remote: netip.AddrPortFrom(netip.AddrFrom16(s.Flow.Remote).Unmap(), s.Flow.RemotePort),
			Netns:  s.Flow.Netns,
		},
		policy:   s.Policy,
		observed: s.Algorithm == toDefault,
		closed:   s.Closed != 0,
	}, nil
}

// counters of the kernel half.
func (k *kernel) counters() (c bpf.Counters, err error) {
	if err := k.Variables["plait_counts"].Get(&c); err != nil {
		return c, fmt.Errorf("read counters: %w", err)
	}
	return c, nil
}

// latencies of all destination prefixes.
func (k *kernel) latencies() (map[bpf.Prefix]bpf.Latency, error) {
	out := map[bpf.Prefix]bpf.Latency{}
	var key bpf.Prefix
	var value bpf.Latency
	it := k.Maps["plait_latencies"].Iterate()
	for it.Next(&key, &value) {
		out[key] = value
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read latencies: %w", err)
	}
	return out, nil
}

// Close takes everything out of the kernel. Sockets that still use the congestion control keep it alive until they leave.
func (k *kernel) Close() error {
	var errs []error
	if k.samples != nil {
		errs = append(errs, k.samples.Close())
	}
	for _, l := range slices.Backward(k.links) {
		errs = append(errs, l.Close())
	}
	if k.Collection != nil {
		if !k.linked {
			if err := k.Maps[bpf.Name].Delete(uint32(0)); err != nil {
				errs = append(errs, fmt.Errorf("unregister congestion control %s: %w", bpf.Name, err))
			}
		}
		k.Collection.Close()
	}
	return errors.Join(errs...)
}

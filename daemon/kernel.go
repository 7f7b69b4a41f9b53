package daemon

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/signals"
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
	record  ringbuf.Record // the last of them; read uses its memory again
	control bpf.Control
	takes   bool          // connections; if not, those of another plait are none of its business
	linked  bool          // registration hangs on a link; before Linux 6.4 it is permanent and must be taken back
	helper  *helper       // visits other network namespaces; nil: this process does
	tracing error         // why bursts of held-out connections cannot be timed, if they cannot
	silent  time.Duration // the longest time between two heartbeats since a tick has looked
}

// errTaken is why a second plait cannot come up. A registration that hangs on a link cannot be left over.
func errTaken(linked bool) error {
	if linked {
		return errors.New("another plait is up, with another control socket; end that one with plait down --control PATH" + orKill)
	}
	return fmt.Errorf("register congestion control %s: there is one already: another plait is up, or a kernel before 6.4 kept it; plait down removes it", bpf.Name)
}

// load reads the programs for a configuration. One that leaves all connections alone has no use for the congestion control, which before Linux 6.4 would be registered.
func load(c Config) (spec *ebpf.CollectionSpec, linked bool, err error) {
	spec, linked, err = bpf.Load()
	if err == nil && !c.takes() {
		delete(spec.Maps, bpf.Name)
	}
	return spec, linked, err
}

// loadKernel loads the programs (bpf.Load); before Linux 6.4 that registers the congestion control. No socket uses it yet.
func loadKernel(spec *ebpf.CollectionSpec, linked bool, control bpf.Control) (k *kernel, err error) {
	if spec.Maps[bpf.Name] != nil && !linked && registered() {
		return nil, errTaken(linked)
	}
	control.Generation = 1 // what the kernel half has not seen yet is 0
	control.Key = rand.Uint64()
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
		return nil, errTaken(linked) // by one that came up meanwhile
	}
	if err != nil {
		err = refused(err)
	}
	if verifier := new(ebpf.VerifierError); errors.As(err, &verifier) {
		return nil, fmt.Errorf("load programs into the kernel: %w; the host is as before; report this with what uname -r says", err)
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
	if k.tracing == nil {
		for _, name := range tracing {
			if k.Programs[name] == nil { // the kernel has no such function
				continue
			}
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
			return fmt.Errorf("attach %s: %w", what, refused(err))
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
var tracing = []string{"plait_sendmsg", "plait_sendpages", "plait_acked"}

// probeTracing tries whether programs may be put at the entry of kernel functions.
func probeTracing() error {
	spec, _, err := bpf.Load()
	if err != nil {
		return err
	}
	probe := &ebpf.CollectionSpec{Maps: spec.Maps, Programs: map[string]*ebpf.ProgramSpec{}, Types: spec.Types, ByteOrder: spec.ByteOrder, Variables: spec.Variables}
	for _, name := range tracing {
		if p := spec.Programs[name]; p != nil {
			probe.Programs[name] = p
		}
	}
	delete(probe.Maps, bpf.Name)
	c, err := ebpf.NewCollection(probe)
	if err != nil {
		return refused(err)
	}
	c.Close()
	return nil
}

// hook makes the kernel offer every new connection of the processes in a cgroup (v2) and below to plait.
func (k *kernel) hook(cgroup string) error {
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupSockOps, Program: k.Programs["plait_sockops"]})
	if err != nil {
		if id, where := occupant(cgroup); errors.Is(err, unix.EPERM) && where != "" {
			return fmt.Errorf("attach to the connections of cgroup %s: %s has program %d of somebody else, which seems to allow none beside it (it is attached without BPF_F_ALLOW_MULTI): "+
				"bpftool prog show id %[3]d says what it is; end it, or name another cgroup in the configuration", shownCgroup(cgroup), shownCgroup(where), id)
		}
		return fmt.Errorf("attach to the connections of cgroup %s: %w", cgroup, refused(err))
	}
	k.hooked = l
	return nil
}

// engage registers the congestion control, whose name is one for all network namespaces, and begins to take connections.
func (k *kernel) engage(cgroup string) error {
	k.takes = true
	if k.linked {
		err := k.attach("congestion control")(link.AttachStructOps(link.StructOpsOptions{Map: k.Maps[bpf.Name]}))
		if errors.Is(err, unix.EEXIST) {
			k.takes = false // those that have it are another plait's
			return errTaken(k.linked)
		}
		if err != nil {
			return err
		}
	}
	return k.hook(cgroup)
}

// beat tells the kernel half that the daemon lives, and how often it wants samples.
func (k *kernel) beat(sampleEvery time.Duration) error {
	now := monotonicNs()
	k.silent = max(k.silent, time.Duration(now-k.control.HeartbeatNs))
	k.control.HeartbeatNs = now
	k.control.SampleNs = uint64(sampleEvery)
	if err := k.Variables["plait_daemon"].Set(k.control); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	return nil
}

// unhook ends what offers new connections to plait.
func (k *kernel) unhook() error {
	if k.hooked == nil {
		return nil
	}
	defer func() { k.hooked = nil }()
	return k.hooked.Close()
}

// choose sets the algorithms of one socket from its next round trip or burst on.
func (k *kernel) choose(cookie uint64, algorithm, bulk signals.Algorithm) error {
	if err := k.Maps["plait_choices"].Put(cookie, bpf.Choice{Algorithm: uint8(algorithm), Bulk: uint8(bulk)}); err != nil {
		return fmt.Errorf("write choice for socket sk:%x: %w", cookie, err)
	}
	return nil
}

// forget removes what choose wrote.
func (k *kernel) forget(cookie uint64) {
	_ = k.Maps["plait_choices"].Delete(cookie) // absent is as wanted
}

// flow is the connection a sample is about, as it is shown.
type flow struct {
	Local, Remote netip.AddrPort
}

func flowOf(f bpf.Flow) flow {
	return flow{
		Local:  netip.AddrPortFrom(netip.AddrFrom16(f.Local).Unmap(), f.LocalPort),
		Remote: netip.AddrPortFrom(netip.AddrFrom16(f.Remote).Unmap(), f.RemotePort),
	}
}

// sample is what the kernel half said about a socket.
type sample struct {
	signals.Sample
	flow       bpf.Flow // flowOf reads it
	policy     uint8
	generation uint32 // of the rules the policy is from
	observed   bool   // on the system's default; policies read it as CUBIC
}

// read waits for the next sample, and says whether there are more. It returns os.ErrClosed after Close.
func (k *kernel) read() (sample, bool, error) {
	if err := k.samples.ReadInto(&k.record); err != nil {
		if errors.Is(err, ringbuf.ErrClosed) {
			err = os.ErrClosed
		}
		return sample{}, false, fmt.Errorf("read samples: %w", err)
	}
	s, err := decodeSample(k.record.RawSample)
	return s, k.record.Remaining > 0, err
}

// pathOf is a number for the two addresses of a flow, in its network namespace, that JSON's readers have room for. That two have the same is no matter: among 100,000 it is one chance in a million.
func pathOf(f *bpf.Flow) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(f.Local[:]) // which never fails
	_, _ = h.Write(f.Remote[:])
	_, _ = h.Write(binary.NativeEndian.AppendUint32(nil, f.Netns))
	return h.Sum64() >> 12
}

// noRTTUs is the kernel's own least round-trip time of an observed socket on which none was measured (include/linux/win_minmax.h).
const noRTTUs = math.MaxUint32

func decodeSample(raw []byte) (sample, error) {
	if len(raw) < int(unsafe.Sizeof(bpf.Sample{})) {
		return sample{}, fmt.Errorf("decode sample: it has %d bytes, want %d", len(raw), unsafe.Sizeof(bpf.Sample{}))
	}
	s := (*bpf.Sample)(unsafe.Pointer(unsafe.SliceData(raw))) // encoding/binary takes most of the daemon's time
	minRTTUs := s.MinRttUs
	if minRTTUs == noRTTUs {
		minRTTUs = 0
	}
	algorithm := signals.Algorithm(s.Algorithm)
	if s.Algorithm == toDefault {
		algorithm = signals.Cubic
	}
	return sample{
		Sample: signals.Sample{
			Cookie: s.Cookie, Path: pathOf(&s.Flow), AtUs: s.AtUs, IntervalUs: s.IntervalUs, SRTTUs: s.SrttUs, MinRTTUs: minRTTUs,
			RateBps: s.RateBps, DispersionBps: s.DispersionBps, Delivered: s.Delivered,
			LostSingle: s.LostSingle, LostBurst: s.LostBurst, RTTAtLossUs: s.RttAtLossUs,
			RTTAtLossMinUs: s.RttAtLossMinUs, RTTAtLossMaxUs: s.RttAtLossMaxUs, LossyRounds: s.LossyRounds,
			SpuriousRecoveries: s.SpuriousRecoveries, IdleRestarts: s.IdleRestarts, Bursts: s.Bursts,
			BurstBytes: s.BurstBytes, BurstLatencyUs: s.BurstLatencyUs, CwndSegments: s.CwndSegments,
			SsthreshSegments: s.SsthreshSegments, MSS: s.MssBytes, Algorithm: algorithm, Bulk: s.Bulk != 0, Closed: s.Closed != 0,
		},
		flow:       s.Flow,
		policy:     s.Policy,
		generation: s.Generation,
		observed:   s.Algorithm == toDefault,
	}, nil
}

// counters of the kernel half.
func (k *kernel) counters() (c bpf.Counters, err error) {
	if err := k.Variables["plait_counts"].Get(&c); err != nil {
		return c, fmt.Errorf("read counters: %w", err)
	}
	return c, nil
}

// bursts counts those since plait came up by their latency: of managed connections, and of those held out.
func (k *kernel) bursts() (all [2][len(bpf.Group{}.Buckets)]uint64, err error) {
	if err := k.Variables["plait_bursts"].Get(&all); err != nil {
		return all, fmt.Errorf("read latencies: %w", err)
	}
	return all, nil
}

// latencies gives those of each destination prefix.
func (k *kernel) latencies(each func(*bpf.Prefix, *bpf.Latency)) error {
	if err := entries(k.Maps["plait_latencies"], 512, each); err != nil {
		return fmt.Errorf("read latencies: %w", err)
	}
	return nil
}

// clearLatencies begins the comparison anew.
func (k *kernel) clearLatencies() error {
	var keys []bpf.Prefix
	if err := k.latencies(func(key *bpf.Prefix, _ *bpf.Latency) { keys = append(keys, *key) }); err != nil {
		return err
	}
	for _, key := range keys {
		if err := k.Maps["plait_latencies"].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("clear latencies: %w", err)
		}
	}
	return nil
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
		k.control.HeartbeatNs = 0 // what stays, such as a listening socket that asked for plait, need not wait for the silence
		errs = append(errs, k.Variables["plait_daemon"].Set(k.control))
		if m := k.Maps[bpf.Name]; m != nil && !k.linked {
			if err := m.Delete(uint32(0)); err != nil {
				errs = append(errs, fmt.Errorf("unregister congestion control %s: %w", bpf.Name, err))
			}
		}
		k.Collection.Close()
	}
	return errors.Join(errs...)
}

package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress/mptcp"
)

// flows watches, in the kernel, the TCP flows that leave an interface from some addresses of this host (bpf/flows.bpf.c). It changes no packet. Everything
// hangs on file descriptors: a process that dies leaves nothing.
type flows struct {
	*ebpf.Collection
	interfaceName string
	index         int // of the interface; 0: the programs see none
	links         []link.Link
	events        *ringbuf.Reader
	transfers     *ringbuf.Reader
	reading       sync.RWMutex // Close waits for those who count, and so does attach
	asking        sync.RWMutex // Close waits for those who ask about one flow, or have an address watched, and nobody else does
	closed        bool         // written under both
	// watched are the addresses whose flows are watched; full: there is no room for more.
	watched map[netip.Addr]bool
	full    bool
}

// openFlows needs Linux 6.6 or newer (tcx). Flows are told what cgroups says of the cgroup of their socket, or of the nearest above. An interface that is not
// there is no error: see attach.
func openFlows(interfaceName string, sources []netip.Addr, cgroups map[uint64]uint32) (*flows, error) {
	spec, err := bpf.LoadFlows()
	if err != nil {
		return nil, err
	}
	return loadFlows(spec, interfaceName, sources, cgroups)
}

func loadFlows(spec *ebpf.CollectionSpec, interfaceName string, sources []netip.Addr, cgroups map[uint64]uint32) (f *flows, err error) {
	f = &flows{interfaceName: interfaceName, watched: map[netip.Addr]bool{}}
	if f.Collection, err = ebpf.NewCollection(spec); err != nil {
		return nil, fmt.Errorf("load the programs that watch flows into the kernel: %w", refused(err))
	}
	opened := f
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	for _, a := range sources {
		if err := f.watch(a); err != nil {
			return nil, err
		}
	}
	if err = put(f.Maps[bpf.FlowsMapPlaitExitCgroups], nil, cgroups); err != nil {
		return nil, fmt.Errorf("write the cgroups of services: %w", err)
	}
	if f.events, err = ringbuf.NewReader(f.Maps[bpf.FlowsMapPlaitFlowEvents]); err != nil {
		return nil, fmt.Errorf("open the ring buffer of flows: %w", err)
	}
	if f.transfers, err = ringbuf.NewReader(f.Maps[bpf.FlowsMapPlaitTransfers]); err != nil {
		return nil, fmt.Errorf("open the ring buffer of transfers: %w", err)
	}
	if err = f.attach(); err != nil {
		return nil, err
	}
	return f, nil
}

// gone says whether the interface that the programs were attached to is no more.
func (f *flows) gone() bool {
	info, err := f.links[0].Info()
	return err == nil && info.TCX() != nil && info.TCX().Ifindex == 0
}

// attach has the programs see the packets of the interface if they do not. It is to be called now and then: an interface may come later, or be made anew, with
// another number and without programs.
func (f *flows) attach() error {
	f.reading.Lock()
	defer f.reading.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	device, err := net.InterfaceByName(f.interfaceName)
	switch {
	case err != nil && (f.index == 0 || !f.gone()): // it is not there, or has another name now
		return nil
	case err != nil:
		device = &net.Interface{}
	case device.Index == f.index:
		return nil
	}
	for _, l := range f.links {
		_ = l.Close() // which went with its interface
	}
	f.links, f.index = nil, 0
	if device.Index == 0 {
		return nil
	}
	for _, one := range []struct {
		name   string
		attach ebpf.AttachType
		anchor link.Anchor // before others' programs, which may let packets pass for good; but behind plait's own that takes ACKs out of their tunnel
	}{{bpf.FlowsProgPlaitFlowHeard, ebpf.AttachTCXIngress, link.Tail()}, {bpf.FlowsProgPlaitFlowSent, ebpf.AttachTCXEgress, link.Head()}} {
		l, err := link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: f.Programs[one.name], Attach: one.attach, Anchor: one.anchor})
		if err != nil {
			return fmt.Errorf("attach to the packets of interface %s: %w", f.interfaceName, err)
		}
		f.links = append(f.links, l)
	}
	f.index = device.Index
	return nil
}

// seeing says whether the interface is there and its packets are seen.
func (f *flows) seeing() bool {
	f.reading.RLock()
	defer f.reading.RUnlock()
	return f.index != 0
}

// watch adds an address of this host, and says once that there is no room for more: some hosts have thousands. It is for one goroutine at a time.
func (f *flows) watch(a netip.Addr) error {
	f.asking.RLock()
	defer f.asking.RUnlock()
	if f.watched[a] || f.full || f.closed {
		return nil
	}
	if err := f.Maps[bpf.FlowsMapPlaitSources].Put(bpf.Source{Address: a.As16()}, uint8(1)); err != nil {
		if f.full = full(err); f.full {
			return fmt.Errorf("watch the flows of address %v: plait watches %d addresses of this host already and has no room for more; what leaves from others is not measured", a, len(f.watched))
		}
		return fmt.Errorf("watch the flows of address %v: %w", a, err)
	}
	f.watched[a] = true
	return nil
}

// flowEvent says that a flow stalls, sticks or has become slow, and is to be judged, or is heard again.
type flowEvent struct {
	ends mptcp.Ends
	news bpf.FlowNews
}

// flowTransfer is how long an MPTCP connection took for so many bytes. The ends are of one of its subflows.
type flowTransfer struct {
	ends             mptcp.Ends
	token, bytes, us uint32
}

// next waits for the next entry of a ring buffer. It returns os.ErrClosed after Close.
func next[T any](r *ringbuf.Reader, what string) (*T, error) {
	record, err := r.Read()
	if err != nil {
		if errors.Is(err, ringbuf.ErrClosed) {
			err = os.ErrClosed
		}
		return nil, fmt.Errorf("read %s of flows: %w", what, err)
	}
	var size T
	if len(record.RawSample) < int(unsafe.Sizeof(size)) {
		return nil, fmt.Errorf("decode %s of flows: %d bytes, want %d", what, len(record.RawSample), unsafe.Sizeof(size))
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(record.RawSample))), nil
}

// read waits for the next event.
func (f *flows) read() (flowEvent, error) {
	e, err := next[bpf.FlowEvent](f.events, "events")
	if err != nil {
		return flowEvent{}, err
	}
	return flowEvent{endsOf(e.Key), e.News}, nil
}

// transferred waits for the next transfer.
func (f *flows) transferred() (flowTransfer, error) {
	t, err := next[bpf.Transfer](f.transfers, "transfers")
	if err != nil {
		return flowTransfer{}, err
	}
	return flowTransfer{endsOf(t.Key), t.Token, t.Bytes, t.Us}, nil
}

func endsOf(k bpf.FlowKey) mptcp.Ends {
	return mptcp.Ends{
		Local:  netip.AddrPortFrom(netip.AddrFrom16(k.Local).Unmap(), k.LocalPort),
		Remote: netip.AddrPortFrom(netip.AddrFrom16(k.Remote).Unmap(), k.RemotePort),
	}
}

// stats of one flow; ok is false if nothing was sent on it, or so long ago that it is forgotten, and after Close.
func (f *flows) stats(e mptcp.Ends) (s bpf.FlowStats, ok bool) {
	f.asking.RLock()
	defer f.asking.RUnlock()
	if f.closed {
		return s, false
	}
	var v bpf.FlowsFlow
	key := flowKey(e)
	err := f.Maps[bpf.FlowsMapPlaitFlows].Lookup(&key, &v)
	return v.Stats, err == nil
}

// A flow is over, as far as can be told, when it had nothing to send for idleFor, or waited for an answer for longer than TCP does (tcp_retries2: 924 s). It is
// forgotten, for reading takes as long as there are flows; should it send again, it is a new one.
const (
	idleFor    = time.Minute
	hopelessIn = 20 * time.Minute
)

func over(f *bpf.FlowsFlow, nowNs uint64) bool {
	if since := f.Stats.UnansweredAtNs; since != 0 {
		return nowNs > since+uint64(hopelessIn)
	}
	return nowNs > max(f.BeganAtNs, f.Stats.HeardAtNs)+uint64(idleFor)
}

// count reads what all flows have done, and forgets those that are over. It returns os.ErrClosed after Close.
func (f *flows) count(each func(bpf.FlowKey, mptcp.Ends, *bpf.FlowStats)) error {
	f.reading.RLock()
	defer f.reading.RUnlock()
	if f.closed {
		return os.ErrClosed
	}
	all, now := f.Maps[bpf.FlowsMapPlaitFlows], monotonicNs()
	var ended []bpf.FlowKey
	err := entries(all, 4096, func(k *bpf.FlowKey, one *bpf.FlowsFlow) {
		each(*k, endsOf(*k), &one.Stats)
		if over(one, now) {
			ended = append(ended, *k)
		}
	})
	if err != nil {
		return fmt.Errorf("read the flows: %w", err)
	}
	for _, k := range ended {
		if err := all.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget a flow that is over: %w", err)
		}
	}
	return nil
}

// Close takes the programs out of the kernel.
func (f *flows) Close() error {
	f.reading.Lock()
	defer f.reading.Unlock()
	f.asking.Lock()
	defer f.asking.Unlock()
	f.closed = true
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	for _, r := range []*ringbuf.Reader{f.events, f.transfers} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	f.Collection.Close()
	return errors.Join(errs...)
}

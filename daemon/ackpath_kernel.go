package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"plait.dev/plait/ackpath"
	"plait.dev/plait/bpf"
)

// ackKernel is what the lever ackpath does to the kernel; tests have another one. A flow is a subflow as its own socket names it.
type ackKernel interface {
	// copyTo has the pure ACKs of a flow copied from now on.
	copyTo(flow bpf.FlowKey, to bpf.AckRoute) error
	// copies says how many there were.
	copies(flow bpf.FlowKey) uint64
	stopCopying(flow bpf.FlowKey) error
	// take gives copies with this name, if they come from this address, to the flow.
	take(name ackpath.Name, from netip.Addr, flow bpf.FlowKey) error
	drop(name ackpath.Name, from netip.Addr, flow bpf.FlowKey) error
	// lead says what copies of the flow do.
	lead(flow bpf.FlowKey) (bpf.AckLead, error)
	// watchSent and watchHeard look at what leaves and enters these interfaces, by number, and no others.
	watchSent(interfaces map[int]bool) error
	watchHeard(interfaces map[int]bool) error
	Close() error
}

// ackPrograms is bpf/acks.bpf.c at work. Everything hangs on file descriptors: a process that dies leaves nothing, and native ACKs were never touched.
type ackPrograms struct {
	*ebpf.Collection
	mu    sync.Mutex // guards what follows
	flows int        // that are copied, or taken copies of
	sent  map[int]link.Link
	heard map[int]link.Link
}

// openAckPrograms loads the programs; nothing is attached yet. What the congestion control reads is shared with it, if it has the map: fair says so. It needs Linux 6.6 (tcx),
// and the right to load programs, which the daemon gives up.
func openAckPrograms(k *kernel, port uint16) (a *ackPrograms, fair bool, err error) {
	spec, err := bpf.LoadAcks()
	if err != nil {
		return nil, false, err
	}
	if err := spec.Variables[bpf.AcksVarPlaitAckPort].Set(port); err != nil {
		return nil, false, fmt.Errorf("set the port of copied ACKs: %w", err)
	}
	var options ebpf.CollectionOptions
	if k != nil {
		shared := k.Maps[bpf.AcksMapPlaitAckNatives]
		if fair = shared != nil; fair {
			options.MapReplacements = map[string]*ebpf.Map{bpf.AcksMapPlaitAckNatives: shared}
		}
	}
	a = &ackPrograms{sent: map[int]link.Link{}, heard: map[int]link.Link{}}
	if a.Collection, err = ebpf.NewCollectionWithOptions(spec, options); err != nil {
		return nil, false, fmt.Errorf("load the programs that copy ACKs into the kernel: %w", refused(err))
	}
	return a, fair, nil
}

// probeTCX tries whether a program can be attached to the packets of an interface, the loopback interface for a moment. It does nothing there.
func (a *ackPrograms) probeTCX() error {
	const loopback = 1
	return errors.Join(a.watchSent(map[int]bool{loopback: true}), a.watchSent(nil))
}

// have counts flows, so that packets are not looked at while there are none.
func (a *ackPrograms) have(more int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flows += more
	return a.Variables[bpf.AcksVarPlaitAckAny].Set(uint32(min(a.flows, 1)))
}

func (a *ackPrograms) copyTo(flow bpf.FlowKey, to bpf.AckRoute) error {
	routes := a.Maps[bpf.AcksMapPlaitAckRoutes]
	var before bpf.AckRoute
	known := routes.Lookup(&flow, &before) == nil
	to.Copies, to.CopiedAtNs, to.SeenAtNs, to.WokenAtNs, to.PaidUntilNs = before.Copies, before.CopiedAtNs, before.SeenAtNs, before.WokenAtNs, before.PaidUntilNs
	if to.Useful = before.Useful; to.Rests == 0 {
		to.Useful = 1
	}
	err := routes.Put(&flow, &to)
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("the ACKs of %d subflows are copied, and there is no room for more", routes.MaxEntries())
	}
	if err != nil {
		return fmt.Errorf("write how a flow's ACKs are copied: %w", err)
	}
	if known {
		return nil
	}
	return a.have(1)
}

func (a *ackPrograms) copies(flow bpf.FlowKey) uint64 {
	var r bpf.AckRoute
	_ = a.Maps[bpf.AcksMapPlaitAckRoutes].Lookup(&flow, &r) // absent is none
	return r.Copies
}

// remove deletes an entry; absent is as wanted, and not counted.
func remove(m *ebpf.Map, key any) (gone int, err error) {
	err = m.Delete(key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, nil
	}
	return 1, err
}

func (a *ackPrograms) stopCopying(flow bpf.FlowKey) error {
	gone, err := remove(a.Maps[bpf.AcksMapPlaitAckRoutes], &flow)
	if err != nil {
		return fmt.Errorf("end the copies of a flow's ACKs: %w", err)
	}
	return a.have(-gone)
}

func bpfName(n ackpath.Name, from netip.Addr) bpf.AckName {
	return bpf.AckName{From: from.As16(), Token: n.Token, Id: n.ID, SenderId: n.SenderID}
}

func (a *ackPrograms) take(name ackpath.Name, from netip.Addr, flow bpf.FlowKey) error {
	key := bpfName(name, from)
	err := a.Maps[bpf.AcksMapPlaitAckFlows].Put(&flow, &bpf.AckLead{})
	if err == nil {
		err = a.Maps[bpf.AcksMapPlaitAckNames].Put(&key, &flow)
	}
	if err != nil {
		return fmt.Errorf("write which socket copied ACKs are for: %w", err)
	}
	return a.have(1)
}

func (a *ackPrograms) drop(name ackpath.Name, from netip.Addr, flow bpf.FlowKey) error {
	key := bpfName(name, from)
	gone, err := remove(a.Maps[bpf.AcksMapPlaitAckNames], &key)
	if err == nil {
		_, err = remove(a.Maps[bpf.AcksMapPlaitAckFlows], &flow)
	}
	if err != nil {
		return fmt.Errorf("remove which socket copied ACKs are for: %w", err)
	}
	return a.have(-gone)
}

func (a *ackPrograms) lead(flow bpf.FlowKey) (l bpf.AckLead, err error) {
	if err := a.Maps[bpf.AcksMapPlaitAckFlows].Lookup(&flow, &l); err != nil {
		return l, fmt.Errorf("read what copies of a flow's ACKs do: %w", err)
	}
	return l, nil
}

// attach makes these the interfaces that a program is attached to, at a place among the programs of others.
func (a *ackPrograms) attach(program string, as ebpf.AttachType, at link.Anchor, links map[int]link.Link, interfaces map[int]bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for i := range interfaces {
		if links[i] != nil {
			continue
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: i, Program: a.Programs[program], Attach: as, Anchor: at})
		if err != nil {
			errs = append(errs, fmt.Errorf("attach to the packets of interface %d: %w", i, err))
			continue
		}
		links[i] = l
	}
	for i, l := range links {
		if !interfaces[i] {
			errs = append(errs, l.Close())
			delete(links, i)
		}
	}
	return errors.Join(errs...)
}

// watchSent comes before the others: the native of an ACK that is copied passes all programs anew, and what they do to packets they are not to do to it twice.
func (a *ackPrograms) watchSent(interfaces map[int]bool) error {
	return a.attach(bpf.AcksProgPlaitAckSent, ebpf.AttachTCXEgress, link.Head(), a.sent, interfaces)
}

func (a *ackPrograms) watchHeard(interfaces map[int]bool) error {
	return a.attach(bpf.AcksProgPlaitAckHeard, ebpf.AttachTCXIngress, link.Tail(), a.heard, interfaces)
}

// Close takes the programs out of the kernel.
func (a *ackPrograms) Close() error {
	err := errors.Join(a.watchSent(nil), a.watchHeard(nil))
	a.Collection.Close()
	return err
}

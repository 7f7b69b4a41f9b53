// Package droptail is the queue of a link whose rate, queue and delay never change: where packets enter the link, a BPF program drops
// what the queue has no room for and hands the rest to the device whose netem does the rate and the delay. netem's own limit cannot be
// that queue, for it also counts the packets that have been transmitted and are only delayed.
package droptail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sort"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// Config describes the queue of one direction of a link.
type Config struct {
	// NS is the namespace of the devices.
	NS string
	// Near is the device that packets come in by, Far the one that transmits them at the rate.
	Near, Far string
	// Priority of the filter at Near's ingress, which has its qdisc already.
	Priority uint16
	// Packets the queue holds, the one in transmission included; at least 1.
	Packets int
	// BytesPerS is the rate; 0 is unlimited.
	BytesPerS uint64
}

// Queue is a queue at work. It lasts as long as its device.
type Queue struct {
	memory  *ebpf.Memory
	packets int
}

// The program's memory, in numbers of 8 bytes: when the last packet will have been transmitted (CLOCK_MONOTONIC, ns); the offset of
// the oldest entry in the ring; and the ring: when each of the last packets will have been, as many as the queue holds.
const (
	last   = 0
	oldest = 8
	ring   = 16
)

// Attach makes the queue.
func Attach(c Config) (*Queue, error) {
	var q *Queue
	err := netns.Do(c.NS, func() (err error) {
		q, err = attach(c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make the queue of %s: %w", c.Near, err)
	}
	return q, nil
}

func attach(c Config) (*Queue, error) {
	near, err := net.InterfaceByName(c.Near)
	if err != nil {
		return nil, err
	}
	far, err := net.InterfaceByName(c.Far)
	if err != nil {
		return nil, err
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(ring + 8*c.Packets), MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, err
	}
	defer m.Close() // the program keeps it
	memory, err := m.Memory()
	if err != nil {
		return nil, err
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: program(m.FD(), far.Index, c)})
	if err != nil {
		return nil, err
	}
	err = netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: near.Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: c.Priority, Protocol: unix.ETH_P_ALL},
		Fd:          p.FD(), Name: "droptail", DirectAction: true,
	})
	return &Queue{memory, c.Packets}, errors.Join(err, p.Close())
}

// Length is the number of packets in the queue.
func (q *Queue) Length() (int, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	return q.length(uint64(now.Nano()))
}

// length at a time: the ring is sorted from its oldest entry on.
func (q *Queue) length(now uint64) (int, error) {
	number := func(offset int) (uint64, error) {
		var b [8]byte
		_, err := q.memory.ReadAt(b[:], int64(offset))
		return binary.NativeEndian.Uint64(b[:]), err
	}
	first, err := number(oldest)
	if err != nil {
		return 0, err
	}
	gone := sort.Search(q.packets, func(i int) bool {
		at, readErr := number(ring + (int(first)+8*i)%(8*q.packets))
		err = errors.Join(err, readErr)
		return at > now
	})
	return q.packets - gone, err
}

// program drops a packet if the one as many places before it as the queue holds is still there, that is, has not been transmitted yet.
// When a packet will have been transmitted is what netem computes: as long after the one before, or after now if the link is idle, as its
// bytes, link-layer header included, take at the rate, rounded down to the nanosecond.
func program(memory, far int, c Config) asm.Instructions {
	const (
		packet = asm.R6
		state  = asm.R7
		entry  = asm.R8 // the oldest in the ring
		now    = asm.R0
		finish = asm.R2
		cost   = asm.R3
		place  = asm.R4 // the entry's offset
		rate   = asm.R5
		length = 0 // offset of struct __sk_buff.len
	)
	end := int32(8 * (c.Packets - 1))
	return asm.Instructions{
		asm.Mov.Reg(packet, asm.R1),
		asm.LoadMapValue(state, memory, 0),
		asm.FnKtimeGetNs.Call(),

		asm.LoadMem(place, state, oldest, asm.DWord),
		asm.JGT.Imm(place, end, "drop"), // never, but the verifier does not know
		asm.Mov.Reg(entry, state),
		asm.Add.Reg(entry, place),
		asm.LoadMem(finish, entry, ring, asm.DWord),
		asm.JGT.Reg(finish, now, "drop"),

		asm.LoadMem(finish, state, last, asm.DWord),
		asm.JGE.Reg(finish, now, "busy"),
		asm.Mov.Reg(finish, now),
		asm.LoadMem(cost, packet, length, asm.Word).WithSymbol("busy"),
		asm.Mul.Imm(cost, 1e9),
		asm.LoadImm(rate, int64(c.BytesPerS), asm.DWord),
		asm.Div.Reg(cost, rate), // by 0 it is 0
		asm.Add.Reg(finish, cost),
		asm.StoreMem(state, last, finish, asm.DWord),
		asm.StoreMem(entry, ring, finish, asm.DWord),

		asm.Add.Imm(place, 8),
		asm.JLE.Imm(place, end, "inside"),
		asm.Mov.Imm(place, 0),
		asm.StoreMem(state, oldest, place, asm.DWord).WithSymbol("inside"),

		asm.Mov.Imm(asm.R1, int32(far)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),

		asm.Mov.Imm(asm.R0, int32(netlink.TC_ACT_SHOT)).WithSymbol("drop"),
		asm.Return(),
	}
}

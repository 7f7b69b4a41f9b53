// Package queue is the drop-tail queue of a link whose rate and delay are one netem's: netem counts the packets on their way in its limit, so that the
// limit of those that wait is not its own. A BPF program in front of it knows from its arithmetic when each packet has been transmitted.
package queue

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

// Config says where a queue is.
type Config struct {
	// NS is the namespace of the devices.
	NS string
	// Near is the device at which packets come in; it has a clsact qdisc. Far is the one whose root qdisc is the netem.
	Near, Far string
	// Packets is the limit, the one in transmission included.
	Packets int
	// RateBps is the link's, in bit/s, and that of the netem: above 0.
	RateBps int64
}

// Queue drops packets that find it full. It lives as long as Near: one CPU runs its program, as the guest has no other.
type Queue struct {
	limit int
	state *ebpf.Memory
}

// The state is an array of words of 64 bits: when each of the last packets that came in has been transmitted (CLOCK_MONOTONIC, in ns), a ring of as many as
// the queue holds; then when the last one has been; then the place in the ring of the next one, where that is which must have left when the next comes in.
const word = 8

// priority is that of the filter: behind that of a blackhole, before that of the redirection there is (package topo).
const priority = 2

// Attach puts a queue at the entry of a link that is led from Near to Far already.
func Attach(c Config) (*Queue, error) {
	state, err := ebpf.NewMap(&ebpf.MapSpec{Name: "queue", Type: ebpf.Array, KeySize: 4, ValueSize: word, MaxEntries: uint32(c.Packets) + 2, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, fmt.Errorf("make a queue of %d packets: %w", c.Packets, err)
	}
	defer state.Close() // the program has it, and so has what is mapped
	q := &Queue{limit: c.Packets}
	if q.state, err = state.Memory(); err != nil {
		return nil, fmt.Errorf("map a queue of %d packets: %w", c.Packets, err)
	}
	return q, netns.Do(c.NS, func() error {
		near, err := net.InterfaceByName(c.Near)
		far, failed := net.InterfaceByName(c.Far)
		if err = errors.Join(err, failed); err != nil {
			return fmt.Errorf("put a queue between %s and %s of %s: %w", c.Near, c.Far, c.NS, err)
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "queue", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: c.program(state.FD(), far.Index)})
		if err != nil {
			return fmt.Errorf("load the program of a queue: %w", err)
		}
		defer p.Close()
		err = netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: near.Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: priority, Protocol: unix.ETH_P_ALL},
			Fd:          p.FD(), Name: "queue", DirectAction: true,
		})
		if err != nil {
			return fmt.Errorf("put a queue behind %s of %s: %w", c.Near, c.NS, err)
		}
		return q.followCarrier(far.Index)
	})
}

// followCarrier empties the queue when the far device loses its carrier, as the kernel then does with the netem's.
func (q *Queue) followCarrier(far int) error {
	updates := make(chan netlink.LinkUpdate)
	if err := netlink.LinkSubscribe(updates, nil); err != nil {
		return fmt.Errorf("follow the carrier of a queue: %w", err)
	}
	go func() {
		for u := range updates {
			if int(u.Index) == far && u.Flags&unix.IFF_RUNNING == 0 {
				_, _ = q.state.WriteAt(make([]byte, q.state.Size()), 0) // all of it, which is no error
			}
		}
	}()
	return nil
}

// Length is how many packets wait or are in transmission.
func (q *Queue) Length() (int, error) {
	next, err := q.at(q.limit + 1)
	if err != nil {
		return 0, err
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return sort.Search(q.limit, func(back int) bool { // the one that came in last is the last to leave
		left, failed := q.at((int(next) - 1 - back + q.limit) % q.limit)
		err = errors.Join(err, failed)
		return left <= uint64(ts.Nano())
	}), err
}

// at is a word of the state.
func (q *Queue) at(index int) (uint64, error) {
	var b [word]byte
	if _, err := q.state.ReadAt(b[:], int64(index)*word); err != nil {
		return 0, fmt.Errorf("read a queue: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

// program takes in a packet if the one as many places before it as the queue holds has been transmitted. A packet's transmission begins when it comes in or when
// that of the one before ends, and takes its length, with 14 bytes of link-layer header, times 8 by the rate, as in netem (net/sched/sch_netem.c, netem_enqueue, packet_time_ns).
func (c Config) program(state, far int) asm.Instructions {
	packet, now, last, next := asm.R6, asm.R7, asm.R8, asm.R9
	key := int16(-4)
	lookup := func() asm.Instructions {
		return asm.Instructions{
			asm.LoadMapPtr(asm.R1, state), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(key)), asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "drop"), // which the verifier asks for
		}
	}
	place := func(index int) asm.Instructions {
		return append(asm.Instructions{asm.StoreImm(asm.RFP, key, int64(index), asm.Word)}, lookup()...)
	}
	i := asm.Instructions{asm.Mov.Reg(packet, asm.R1), asm.FnKtimeGetNs.Call(), asm.Mov.Reg(now, asm.R0)}
	i = append(append(i, place(c.Packets)...), asm.Mov.Reg(last, asm.R0))
	i = append(append(i, place(c.Packets+1)...), asm.Mov.Reg(next, asm.R0),
		asm.LoadMem(asm.R1, next, 0, asm.DWord), asm.StoreMem(asm.RFP, key, asm.R1, asm.Word))
	return append(append(i, lookup()...),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.JGT.Reg(asm.R1, now, "drop"),

		asm.LoadMem(asm.R2, last, 0, asm.DWord),
		asm.JGE.Reg(asm.R2, now, "transmit"),
		asm.Mov.Reg(asm.R2, now),
		asm.LoadMem(asm.R3, packet, 0, asm.Word).WithSymbol("transmit"), // __sk_buff.len
		asm.Mul.Imm(asm.R3, 1e9),
		asm.LoadImm(asm.R4, c.RateBps/8, asm.DWord),
		asm.Div.Reg(asm.R3, asm.R4),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.StoreMem(last, 0, asm.R2, asm.DWord),
		asm.StoreMem(asm.R0, 0, asm.R2, asm.DWord),

		asm.LoadMem(asm.R1, next, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.JLT.Imm(asm.R1, int32(c.Packets), "on"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(next, 0, asm.R1, asm.DWord).WithSymbol("on"),

		asm.Mov.Imm(asm.R1, int32(far)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), // TC_ACT_SHOT
		asm.Return())
}

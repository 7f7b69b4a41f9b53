// Package emu is the packet emulator of the lab's guest: a process that joins network namespaces by links which any
// model of package link runs. Each end of a link is a TAP device; one thread reads them all, hands the frames to the
// models and writes what comes out when it is due.
//
// The thread runs before everything else in the guest (SCHED_FIFO) and wakes on the nanosecond the kernel's timers allow,
// so a packet is late by little more than the time the process takes to run. A link with nothing to do costs nothing.
//
// Run the tests with
//
//	sudo PLAIT_TEST=netns go test ./lab/emu
package emu

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/link"
)

// direction is one direction of a link at work.
type direction struct {
	from, to *tap
	line     *Line
	stats    DirectionStats // of what came out of the line; the line itself knows the rest
}

// wire is a link at work.
type wire struct {
	name       string
	directions [2]direction // forward and backward
	down       bool         // no carrier
}

// emulator is the state of the process. Only the thread in run touches it.
type emulator struct {
	start    time.Time
	wires    []*wire // in the order of the configuration, which is that of packets due at the same time
	poll     []unix.PollFd
	commands chan func(now time.Duration) // run by the thread between packets
	wake     int                          // eventfd: there is a command
	frame    int                          // longest frame of any link, in bytes
	free     [][]byte                     // buffers for frames; those of dropped packets are left to the garbage collector
	quit     bool
}

// newEmulator makes all devices.
func newEmulator(c Config) (*emulator, error) {
	e := &emulator{start: time.Now(), commands: make(chan func(time.Duration), 1)}
	var err error
	if e.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	for _, l := range c.Links {
		if err := e.add(l); err != nil {
			return nil, err
		}
	}
	e.poll = append(e.poll, unix.PollFd{Fd: int32(e.wake), Events: unix.POLLIN})
	return e, nil
}

// add makes one link. Its lines do nothing yet.
func (e *emulator) add(l Link) error {
	w := &wire{name: l.Name}
	for i, end := range []End{l.A, l.B} {
		t, err := openTAP(end, l.MTU)
		if err != nil {
			return err
		}
		line, err := Build(0, l.Name, []string{"forward", "backward"}[i], experiment.Direction{}, 0)
		if err != nil {
			return err
		}
		w.directions[i].from, w.directions[1-i].to, w.directions[i].line = t, t, line
		e.poll = append(e.poll, unix.PollFd{Fd: int32(t.fd), Events: unix.POLLIN})
	}
	e.wires = append(e.wires, w)
	e.frame = max(e.frame, l.MTU+ethernetHeader)
	return nil
}

// ethernetHeader includes a VLAN tag, which frames may have beyond the MTU.
const ethernetHeader = 14 + 4

func (e *emulator) now() time.Duration { return time.Since(e.start) }

// buffer is room for one frame.
func (e *emulator) buffer() []byte {
	if last := len(e.free) - 1; last >= 0 {
		b := e.free[last]
		e.free = e.free[:last]
		return b
	}
	return make([]byte, e.frame)
}

func (e *emulator) recycle(b []byte) { e.free = append(e.free, b[:cap(b)]) }

// take hands all that one end has sent to the direction's models.
func (e *emulator) take(d *direction, now time.Duration) error {
	for {
		b := e.buffer()
		n, ok, err := d.from.read(b)
		if !ok {
			e.recycle(b)
			return err
		}
		d.line.Send(now, link.Packet{Bytes: n, Data: b[:n]})
	}
}

// takeAll reads from the devices that poll has found ready.
func (e *emulator) takeAll(now time.Duration) error {
	for i, w := range e.wires {
		for j := range w.directions {
			if e.poll[2*i+j].Revents == 0 {
				continue
			}
			if err := e.take(&w.directions[j], now); err != nil {
				return err
			}
		}
	}
	return nil
}

// deliver writes what is due and returns when something will be, or false if nothing is under way.
func (e *emulator) deliver(now time.Duration) (next time.Duration, busy bool) {
	for _, w := range e.wires {
		for i := range w.directions {
			d := &w.directions[i]
			for p, ok := d.line.Receive(now); ok; p, ok = d.line.Receive(now) {
				d.out(p, w.down)
				e.recycle(p.Data)
			}
			if at, ok := d.line.Next(); ok && (!busy || at < next) {
				next, busy = at, true
			}
		}
	}
	return next, busy
}

// out ends a packet's way.
func (d *direction) out(p link.Packet, down bool) {
	if down || !d.to.write(p.Data) {
		d.stats.Drops++
		return
	}
	d.stats.Packets++
	d.stats.Bytes += uint64(p.Bytes)
}

// wait sleeps until a device or a command is ready, or until the time of the next delivery.
func (e *emulator) wait(next time.Duration, busy bool) error {
	timeout := time.Duration(-1)
	if busy {
		timeout = max(0, next-e.now())
	}
	if err := poll(e.poll, timeout); err != nil {
		return fmt.Errorf("wait for packets: %w", err)
	}
	return nil
}

// run carries packets until it is told to quit.
func (e *emulator) run() error {
	next, busy := time.Duration(0), true
	for !e.quit {
		if err := e.wait(next, busy); err != nil {
			return err
		}
		now := e.now()
		if err := e.takeAll(now); err != nil {
			return err
		}
		next, busy = e.deliver(now)
		if e.runCommands(now) {
			next, busy = e.deliver(now)
		}
	}
	return nil
}

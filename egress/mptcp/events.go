package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// eventBuffer is the kernel's room for events not yet read: about 10,000, some seconds at 1,000 new connections a second.
const eventBuffer = 8 << 20

// gather is the least time between two looks for events. The first one after a quiet time is told at once; when there are many, to be woken for each would cost more
// than what is done about it.
const gather = 3 * time.Millisecond

// eventsAtOnce are told together at most: what else the Manager is to do waits for them.
const eventsAtOnce = 64

const (
	netlinkHeader = 16 // struct nlmsghdr
	genericHeader = 4  // struct genlmsghdr, which begins with the command
)

// events is a socket that hears of what happens to the connections of a network namespace.
//
// It is not in Go's poller, which would be woken by each event, also while nobody wants to know. It is in an epoll instance of its own, which says once that there is
// something, and nothing more until it is asked again; Go's poller waits for that instance.
type events struct {
	socket, ready *os.File
	looked        time.Time // when there was something
	buffer        []byte
}

// openEvents subscribes to events of some types, from now on.
func openEvents(group uint32, types ...EventType) (*events, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open generic netlink: %w", err)
	}
	e := &events{socket: os.NewFile(uintptr(fd), "events of MPTCP"), buffer: make([]byte, messageBuffer)}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		e.socket.Close()
		return nil, fmt.Errorf("wait for events of MPTCP: %w", err)
	}
	err = unix.SetNonblock(epoll, true) // it is what makes Go's poller take it
	e.ready = os.NewFile(uintptr(epoll), "epoll")
	if err = errors.Join(err,
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, eventBuffer),
		filterTypes(fd, types),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(group)),
		unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{}),
	); err != nil {
		e.Close()
		return nil, fmt.Errorf("subscribe to events of MPTCP: %w: this needs CAP_NET_ADMIN", err)
	}
	return e, nil
}

// filterTypes makes the kernel drop all other events, before anybody is woken for them.
func filterTypes(fd int, types []EventType) error {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: netlinkHeader, Size: 1}}
	for i, t := range types {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(t), SkipTrue: uint8(len(types) - i)})
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: messageBuffer}))
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// Close ends a receive, too.
func (e *events) Close() error { return errors.Join(e.socket.Close(), e.ready.Close()) }

// receive waits for the next events. An error means that some may be lost.
func (e *events) receive() ([]Event, error) {
	for {
		time.Sleep(time.Until(e.looked.Add(gather)))
		all, err := e.read()
		if err != nil {
			return nil, fmt.Errorf("read events of MPTCP: %w", err)
		}
		if len(all) > 0 {
			if len(all) < eventsAtOnce {
				e.looked = time.Now()
			}
			return all, nil
		}
		if err := e.wait(); err != nil {
			return nil, fmt.Errorf("wait for events of MPTCP: %w", err)
		}
	}
}

// read returns the events that are there.
func (e *events) read() (all []Event, err error) {
	conn, err := e.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := conn.Control(func(fd uintptr) {
		for len(all) < eventsAtOnce && err == nil {
			var n int
			if n, _, err = unix.Recvfrom(int(fd), e.buffer, unix.MSG_DONTWAIT); err == nil {
				all, err = parseEvents(all, e.buffer[:n])
			}
		}
	})
	if errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	return all, errors.Join(controlErr, err)
}

// parseEvents adds those of a message or several.
func parseEvents(all []Event, b []byte) ([]Event, error) {
	for len(b) > 0 {
		if len(b) < netlinkHeader+genericHeader {
			return nil, fmt.Errorf("message of %d bytes", len(b))
		}
		size := int(binary.NativeEndian.Uint32(b))
		if size < netlinkHeader+genericHeader || size > len(b) {
			return nil, fmt.Errorf("message of %d bytes says it has %d", len(b), size)
		}
		e, err := parseEvent(b[netlinkHeader], b[netlinkHeader+genericHeader:size])
		if err != nil {
			return nil, err
		}
		all, b = append(all, e), b[min(len(b), (size+3)&^3):]
	}
	return all, nil
}

// wait until there is something.
func (e *events) wait() error {
	socket, err := e.socket.SyscallConn()
	if err != nil {
		return err
	}
	ready, err := e.ready.SyscallConn()
	if err != nil {
		return err
	}
	ask := func(epoll uintptr) {
		controlErr := socket.Control(func(fd uintptr) {
			err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_MOD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT})
		})
		err = errors.Join(err, controlErr)
	}
	if controlErr := ready.Control(ask); err != nil || controlErr != nil {
		return errors.Join(err, controlErr)
	}
	some := make([]unix.EpollEvent, 1)
	readErr := ready.Read(func(epoll uintptr) bool {
		var n int
		n, err = unix.EpollWait(int(epoll), some, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	return errors.Join(readErr, err)
}

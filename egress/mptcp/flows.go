package mptcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Further numbers of include/uapi/linux/{inet_diag,mptcp,tcp}.h.
const (
	diagCong = 4

	subflowTokenRemote = 1
	subflowIDRemote    = 9

	infoLastDataReceived = 52 // offsets in struct tcp_info
	infoMinRTT           = 148
	diagInterface        = 40 // offset in struct inet_diag_msg
)

// Flow is a subflow of any MPTCP connection of this network namespace with what the levers that look at single subflows need.
type Flow struct {
	Subflow
	// Token is this host's of the connection.
	Token uint32
	// RemoteToken is the peer's; 0 unless this host opened the subflow by joining (MP_JOIN), for the kernel keeps it no longer.
	RemoteToken uint32
	RemoteID    uint8
	// Interface the socket is bound to, by number; 0: none.
	Interface uint32
	// Congestion is the name of the congestion control.
	Congestion string
	// Quiet is how long ago the last data was received.
	Quiet time.Duration
	// MinRTT is the shortest round trip the kernel has measured, its handshake's among them; 0: not known.
	MinRTT time.Duration
}

// Flows lists the subflows of all MPTCP connections that can carry data. It takes about as long as there are TCP sockets, whatever they are of.
func Flows() (flows []Flow, err error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{MessageBufferSize: 64 << 10})
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	defer conn.Close()
	visit := func(s diagSocket) error {
		f, err := parseFlow(s)
		if err == nil && f.Token != 0 {
			flows = append(flows, f)
		}
		return err
	}
	return flows, errors.Join(
		dump(conn, unix.IPPROTO_TCP, unix.AF_INET, statesOfData, visit),
		dump(conn, unix.IPPROTO_TCP, unix.AF_INET6, statesOfData, visit),
	)
}

// parseFlow reads what sock_diag says of a TCP socket; the token is 0 if it belongs to no MPTCP connection.
func parseFlow(s diagSocket) (Flow, error) {
	subflow, token, _, err := parseSubflow(s)
	f := Flow{Subflow: subflow, Token: token, Interface: s.bound}
	if err != nil || token == 0 {
		return f, err
	}
	d, err := netlink.NewAttributeDecoder(s.attributes)
	if err != nil {
		return f, err
	}
	for d.Next() {
		switch d.Type() {
		case diagInfo:
			if b := d.Bytes(); len(b) >= infoLastDataReceived+4 {
				f.Quiet = time.Duration(binary.NativeEndian.Uint32(b[infoLastDataReceived:])) * time.Millisecond
				if len(b) >= infoMinRTT+4 {
					f.MinRTT = time.Duration(int32(binary.NativeEndian.Uint32(b[infoMinRTT:]))) * time.Microsecond // of none it is -1
				}
			}
		case diagCong:
			f.Congestion = string(bytes.TrimRight(d.Bytes(), "\x00"))
		case diagULPInfo:
			d.Nested(f.names)
		}
	}
	return f, d.Err()
}

// names reads what the peer calls the subflow.
func (f *Flow) names(d *netlink.AttributeDecoder) error {
	for d.Next() {
		if d.Type() != ulpInfoMPTCP {
			continue
		}
		d.Nested(func(d *netlink.AttributeDecoder) error {
			for d.Next() {
				switch d.Type() {
				case subflowTokenRemote:
					f.RemoteToken = d.Uint32()
				case subflowIDRemote:
					f.RemoteID = d.Uint8()
				}
			}
			return nil
		})
	}
	return nil
}

// Joins calls joined whenever a subflow of this network namespace is established, until stop is closed. Calls may be fewer than subflows: several may be told at once.
func Joins(stop <-chan struct{}, joined func()) error {
	c, err := openCommands()
	if err != nil {
		return err
	}
	defer c.conn.Close()
	events, err := openEvents(c.group, SubEstablished)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-stop:
		case <-over:
		}
		events.Close()
	}()
	for {
		_, err := events.receive()
		select {
		case <-stop:
			return nil
		default:
		}
		if errors.Is(err, unix.ENOBUFS) { // some are lost
			joined()
			continue
		}
		if err != nil {
			return err
		}
		joined()
	}
}

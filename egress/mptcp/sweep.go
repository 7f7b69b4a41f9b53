package mptcp

import (
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// sweepEvery is the least time between two looks for connections that are no more; a look takes a hundredth of the time at most. Tests have less.
var sweepEvery = time.Minute

// Sweep takes in the tokens of all connections there are, and forgets those that two calls in a row did not find: of the end of a connection that its client resets, or
// that no application accepts, the kernel says nothing. One look can miss a connection, while others come and go beside it.
func (m *Manager) Sweep(there map[uint32]bool) {
	for token, c := range m.byToken {
		switch {
		case there[token]:
			c.missed = false
		case !c.missed:
			c.missed = true
		default:
			c.ready = false // it may still be in a queue
			m.leave(c)
		}
	}
}

// tokens lists the MPTCP connections of the calling thread's network namespace.
func tokens() (map[uint32]bool, error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{MessageBufferSize: 64 << 10})
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	defer conn.Close()
	there := map[uint32]bool{}
	visit := func(s diagSocket) error {
		c, err := parseConnection(s)
		there[c.Token] = true
		return err
	}
	return there, errors.Join(dump(conn, unix.IPPROTO_MPTCP, unix.AF_INET, statesOfMPTCP, visit), dump(conn, unix.IPPROTO_MPTCP, unix.AF_INET6, statesOfMPTCP, visit))
}

// sweep returns when to do it again.
func (s *Service) sweep() time.Duration {
	began := time.Now()
	there, err := tokens()
	if err != nil {
		s.manager.config.Log.Warn("MPTCP connections that are no more are not found: it is tried again", "err", err)
		return sweepEvery
	}
	took := time.Since(began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manager.Sweep(there)
	return max(sweepEvery, 100*took)
}

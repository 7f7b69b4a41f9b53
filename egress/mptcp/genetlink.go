package mptcp

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// messageBuffer holds the largest answer, the description of the family; without it every message would be asked twice, first for its length.
const messageBuffer = 16 << 10

// commands is the Kernel of the network namespace of the thread that opened it.
type commands struct {
	conn   *genetlink.Conn
	family genetlink.Family
	group  uint32 // of events
}

func openCommands() (*commands, error) {
	conn, err := genetlink.Dial(&netlink.Config{MessageBufferSize: messageBuffer})
	if err != nil {
		return nil, fmt.Errorf("open generic netlink: %w", err)
	}
	c := &commands{conn: conn}
	// The texts are what tells the kernel's many EINVAL apart.
	if err := conn.SetOption(netlink.ExtendedAcknowledge, true); err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask generic netlink for texts of errors: %w", err)
	}
	if c.family, err = conn.GetFamily(familyName); err != nil {
		conn.Close()
		return nil, fmt.Errorf("find generic netlink family %s: %w: the kernel has no MPTCP: use one with CONFIG_MPTCP, 5.19 or newer", familyName, err)
	}
	for _, g := range c.family.Groups {
		if g.Name == eventGroup {
			c.group = g.ID
		}
	}
	if c.group == 0 {
		conn.Close()
		return nil, fmt.Errorf("find events of MPTCP: family %s has no group %s: use Linux 5.19 or newer", familyName, eventGroup)
	}
	return c, nil
}

func (c *commands) execute(what string, command uint8, token uint32, local, remote *address, id uint8) error {
	data, err := encodeCommand(token, local, remote, id)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	m := genetlink.Message{Header: genetlink.Header{Command: command, Version: c.family.Version}, Data: data}
	_, err = c.conn.Execute(m, c.family.ID, netlink.Request|netlink.Acknowledge)
	if err != nil {
		return fmt.Errorf("%s: %w", what, classify(err))
	}
	return nil
}

// reasons are words in the kernel's texts (net/mptcp/pm_userspace.c, Linux 5.19 to 6.18) and what they mean.
var reasons = []struct {
	text string
	err  error
}{
	{"invalid token", ErrGone},
	{"address with ", ErrGone}, // "specified id not found", "id 7 not found"
	{"subflow not found", ErrGone},
	{"userspace PM not selected", ErrNotOurs},
	{"did not match address and id", ErrID},
}

func classify(err error) error {
	var op *netlink.OpError
	if !errors.As(err, &op) {
		return err
	}
	for _, r := range reasons {
		if strings.Contains(op.Message, r.text) {
			return fmt.Errorf("%w (%w)", r.err, err)
		}
	}
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOTCONN) {
		return fmt.Errorf("%w (%w)", ErrGone, err)
	}
	return err
}

func (c *commands) Announce(token uint32, addr netip.Addr, id uint8) error {
	a := address{addr: addr.Unmap(), id: id, flags: flagSignal}
	return c.execute("announce "+addr.String(), cmdAnnounce, token, &a, nil, 0)
}

func (c *commands) Remove(token uint32, id uint8) error {
	return c.execute("withdraw an announced address", cmdRemove, token, nil, nil, id)
}

func (c *commands) Destroy(token uint32, s Subflow) error {
	local := address{addr: s.Local.Addr(), port: s.Local.Port()}
	remote := address{addr: s.Remote.Addr(), port: s.Remote.Port()}
	return c.execute("close subflow", cmdSubflowDestroy, token, &local, &remote, 0)
}

func (c *commands) SetBackup(token uint32, s Subflow, backup bool) error {
	local := address{addr: s.Local.Addr(), port: s.Local.Port()}
	remote := address{addr: s.Remote.Addr(), port: s.Remote.Port()}
	if backup {
		local.flags = flagBackup
	}
	err := c.execute("set priority of subflow", cmdSetFlags, token, &local, &remote, 0)
	var op *netlink.OpError
	if errors.As(err, &op) && op.Message == "" && errors.Is(op, unix.EINVAL) { // Linux 6.1 and 6.12 have no text for a subflow that is not there
		return fmt.Errorf("%w (%w)", ErrGone, err)
	}
	return err
}

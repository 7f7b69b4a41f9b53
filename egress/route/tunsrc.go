package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The kernel's generic netlink family for segment routing, include/uapi/linux/seg6_genl.h.
const (
	seg6Family    = "SEG6"
	seg6SetTunsrc = 3
	seg6GetTunsrc = 4
	seg6AttrDst   = 1
)

// memory is what the file keeps: the tunnel source that was there, and the one plait put there. The kernel has no room for it, and without it the
// process after a crash would take plait's for the host's.
type memory struct {
	Before netip.Addr `json:"before"`
	Ours   netip.Addr `json:"ours"`
}

// tunsrc speaks to the SEG6 family.
type tunsrc struct {
	*socket
	family uint16
}

func openTunsrc() (*tunsrc, error) {
	s, err := openSocket(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	b, err := s.get(func(m *message, seq uint32) {
		m.begin(unix.GENL_ID_CTRL, 0, seq, nl.GENL_CTRL_CMD_GETFAMILY, 1, 0, 0)
		m.attribute(nl.GENL_CTRL_ATTR_FAMILY_NAME, append([]byte(seg6Family), 0)...)
		m.end()
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("find the kernel's SRv6: %w; it needs a kernel built with CONFIG_IPV6_SEG6_LWTUNNEL, and IPv6 not switched off (ipv6.disable)", err)
	}
	t := &tunsrc{socket: s}
	if len(b) > 4 {
		attributes(b[4:], func(kind uint16, value []byte) {
			if kind == nl.GENL_CTRL_ATTR_FAMILY_ID {
				t.family = uint16(number(value))
			}
		})
	}
	return t, nil
}

// current is the address encapsulated packets come from; :: is whatever suits the route.
func (t *tunsrc) current() (netip.Addr, error) {
	b, err := t.get(func(m *message, seq uint32) {
		m.begin(t.family, 0, seq, seg6GetTunsrc, 1, 0, 0)
		m.end()
	})
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read the tunnel source: %w", err)
	}
	var a netip.Addr
	if len(b) > 4 {
		attributes(b[4:], func(kind uint16, value []byte) {
			if kind == seg6AttrDst {
				a = address(value)
			}
		})
	}
	return a, nil
}

func (t *tunsrc) set(a netip.Addr) error {
	return t.ask(func(m *message, seq uint32) {
		m.begin(t.family, 0, seq, seg6SetTunsrc, 1, 0, 0)
		m.address(seg6AttrDst, a)
		m.end()
	})
}

// remembered reads the memory; none is no error.
func (k *Kernel) remembered() (memory, error) {
	if k.config.Memory == "" {
		return k.memory, nil
	}
	var m memory
	b, err := os.ReadFile(k.config.Memory)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read which tunnel source was there before plait: %w; if it was none, remove the file", err)
	}
	return m, nil
}

func (k *Kernel) remember(m memory) error {
	k.memory = m
	if k.config.Memory == "" {
		return nil
	}
	b, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(k.config.Memory, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note which tunnel source was there before plait: %w", err)
	}
	return nil
}

// takeTunsrc makes the configured tunnel source the kernel's, and remembers what was there before it does.
func (k *Kernel) takeTunsrc() error {
	want := k.config.TunnelSource
	if !k.isLocal(want) {
		return fmt.Errorf("use tunnel source %v: this host has no such address; give one it has that is not an exit's", want)
	}
	now, err := k.tunsrc.current()
	if err != nil || now == want {
		return err
	}
	m, err := k.remembered()
	if err != nil {
		return err
	}
	reason := "missing"
	if m.Ours != now || !m.Ours.IsValid() { // the host's own, or what somebody set since
		m.Before = now
		reason = fmt.Sprintf("was %v", now)
	}
	m.Ours = want
	if err := k.remember(m); err != nil {
		return err
	}
	return k.note(Step{Verb: Replace, Object: text("tunnel source " + want.String()), Reason: reason, Err: k.tunsrc.set(want)})
}

// giveTunsrc puts back what was there, unless somebody else has set another since.
func (k *Kernel) giveTunsrc() error {
	m, err := k.remembered()
	if err != nil || !m.Ours.IsValid() {
		return err
	}
	now, err := k.tunsrc.current()
	if err != nil {
		return err
	}
	if now == m.Ours {
		err = k.note(Step{Verb: Replace, Object: text("tunnel source " + m.Before.String()), Reason: "it was there before plait", Err: k.tunsrc.set(m.Before)})
	}
	if err != nil {
		return err
	}
	k.memory = memory{}
	if k.config.Memory != "" {
		err = os.Remove(k.config.Memory)
	}
	return err
}

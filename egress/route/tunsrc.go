package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
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
	*genetlink.Conn
	family genetlink.Family
}

func openTunsrc() (*tunsrc, error) {
	c, err := genetlink.Dial(&netlink.Config{Strict: true})
	if err != nil {
		return nil, fmt.Errorf("open generic netlink: %w", err)
	}
	f, err := c.GetFamily(seg6Family)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("find the kernel's SRv6: %w; it needs a kernel built with CONFIG_IPV6_SEG6_LWTUNNEL, and IPv6 not switched off (ipv6.disable)", explain(err))
	}
	return &tunsrc{c, f}, nil
}

func (t *tunsrc) execute(command uint8, flags netlink.HeaderFlags, b []byte) ([]genetlink.Message, error) {
	answers, err := t.Execute(genetlink.Message{Header: genetlink.Header{Command: command, Version: t.family.Version}, Data: b}, t.family.ID, netlink.Request|flags)
	return answers, explain(err)
}

// current is the address encapsulated packets come from; :: is whatever suits the route.
func (t *tunsrc) current() (a netip.Addr, err error) {
	answers, err := t.execute(seg6GetTunsrc, 0, nil)
	if err != nil {
		return a, fmt.Errorf("read the tunnel source: %w", err)
	}
	for _, answer := range answers {
		attributes(answer.Data, func(ad *netlink.AttributeDecoder) {
			if ad.Type() == seg6AttrDst {
				a = address(ad)
			}
		})
	}
	return a, nil
}

func (t *tunsrc) set(a netip.Addr) error {
	_, err := t.execute(seg6SetTunsrc, netlink.Acknowledge, body{}.address(seg6AttrDst, a))
	return err
}

// remembered reads the memory; none is no error. One that cannot be understood must not keep the exits without
// routes, nor plait in the kernel.
func (k *Kernel) remembered() (memory, error) {
	if k.config.Memory == "" {
		return k.memory, nil
	}
	var m memory
	b, err := os.ReadFile(k.config.Memory)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read which tunnel source was there before plait: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		_ = k.note(Step{Verb: Leave, Object: text("the tunnel source before plait"), Err: fmt.Errorf("read %s: %w; it is taken for none (::)", k.config.Memory, err)})
		return memory{Before: netip.IPv6Unspecified(), Ours: k.config.TunnelSource}, nil
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
		err = os.WriteFile(k.config.Memory+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(k.config.Memory+".new", k.config.Memory)
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
	if err != nil {
		return err
	}
	now, err := k.tunsrc.current()
	if err != nil {
		return err
	}
	if m.Ours.IsValid() && now == m.Ours {
		err = k.note(Step{Verb: Replace, Object: text("tunnel source " + m.Before.String()), Reason: "it was there before plait", Err: k.tunsrc.set(m.Before)})
	}
	if err != nil {
		return err
	}
	k.memory = memory{}
	if k.config.Memory != "" {
		err = os.Remove(k.config.Memory)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

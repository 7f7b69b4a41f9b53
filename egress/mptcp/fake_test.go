package mptcp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// fake is a kernel that does what it is told, and writes it down.
type fake struct {
	connections map[uint32]*Connection
	announced   map[uint32]map[uint8]netip.Addr
	log         []string
	refuse      error // what the next commands say
	silent      bool  // do not write
}

func newFake() *fake {
	return &fake{connections: map[uint32]*Connection{}, announced: map[uint32]map[uint8]netip.Addr{}}
}

func (f *fake) write(format string, args ...any) {
	if !f.silent {
		f.log = append(f.log, fmt.Sprintf(format, args...))
	}
}

func (f *fake) check(token uint32) error {
	if f.refuse == nil && f.connections[token] == nil {
		return ErrGone
	}
	return f.refuse
}

func (f *fake) Announce(token uint32, addr netip.Addr, id uint8) error {
	f.write("announce %v", addr)
	if err := f.check(token); err != nil {
		return err
	}
	if f.announced[token] == nil {
		f.announced[token] = map[uint8]netip.Addr{}
	}
	if old, ok := f.announced[token][id]; ok && old != addr {
		return ErrID
	}
	f.announced[token][id] = addr
	return nil
}

func (f *fake) Remove(token uint32, id uint8) error {
	if f.refuse == nil && f.connections[token] != nil {
		f.write("remove %v", f.announced[token][id])
		delete(f.announced[token], id)
	}
	return f.check(token)
}

func (f *fake) Destroy(token uint32, s Subflow) error {
	f.write("destroy %v", s.Local.Addr())
	if err := f.check(token); err != nil {
		return err
	}
	c := f.connections[token]
	i := slices.IndexFunc(c.Subflows, func(x Subflow) bool { return x.Local == s.Local && x.Remote == s.Remote })
	if i < 0 {
		return ErrGone
	}
	c.Subflows = slices.Delete(c.Subflows, i, i+1)
	return nil
}

func (f *fake) SetBackup(token uint32, s Subflow, backup bool) error {
	f.write("backup %v %v", s.Local.Addr(), backup)
	return f.check(token)
}

// took returns what was written since the last call.
func (f *fake) took() string {
	defer func() { f.log = nil }()
	return strings.Join(f.log, ", ")
}

// open makes a connection from the client and returns its event.
func (f *fake) open(token uint32, server, client string) []Event {
	s := Subflow{Local: netip.MustParseAddrPort(server), Remote: netip.MustParseAddrPort(client)}
	f.connections[token] = &Connection{Token: token, Server: true, Local: s.Local, Remote: s.Remote, Subflows: []Subflow{s}}
	return []Event{
		{Type: Established, Token: token, Server: true, Subflow: s},
	}
}

// join makes a subflow.
func (f *fake) join(token uint32, server, client string) Event {
	s := Subflow{Local: netip.MustParseAddrPort(server), Remote: netip.MustParseAddrPort(client)}
	for id, a := range f.announced[token] {
		if a == s.addr() {
			s.LocalID = id
		}
	}
	c := f.connections[token]
	c.Subflows = append(slices.Clone(c.Subflows), s)
	return Event{Type: SubEstablished, Token: token, Subflow: s}
}

// rig is a Manager on a fake, at a time that only the test moves.
type rig struct {
	*testing.T
	*fake
	m     *Manager
	now   time.Time
	exits []ExitAddress
}

func newRig(t *testing.T, config Config) *rig {
	r := &rig{T: t, fake: newFake(), now: time.Unix(1e9, 0)}
	config.Reachable = func(Peer) []ExitAddress { return r.exits }
	if config.Exits == nil {
		for _, a := range []string{a4, b4, a6, b6} {
			config.Exits = append(config.Exits, netip.MustParseAddr(a))
		}
	}
	m, err := New(config, r.fake)
	if err != nil {
		t.Fatal(err)
	}
	r.m = m
	return r
}

const (
	a4, b4 = "192.0.2.11", "192.0.2.12"
	a6, b6 = "2001:db8::11", "2001:db8::12"
)

// reach sets what reaches the client; a name with a star is a backup.
func (r *rig) reach(addrs ...string) {
	r.exits = nil
	for _, a := range addrs {
		name, backup := strings.CutSuffix(a, "*")
		r.exits = append(r.exits, ExitAddress{Addr: netip.MustParseAddr(name), Backup: backup})
	}
}

func (r *rig) handle(events ...Event) {
	for _, e := range events {
		r.m.Handle(e, r.now)
	}
}

// wants compares what the kernel was told since the last call.
func (r *rig) wants(want string) {
	r.Helper()
	if got := r.took(); got != want {
		r.Errorf("the kernel was told\n%s\nwant\n%s", got, want)
	}
}

// change says that other exits reach clients, and lets the manager work.
func (r *rig) change(prefixes ...netip.Prefix) {
	var within func(netip.Addr) bool
	if len(prefixes) > 0 {
		within = newPrefixSet(prefixes).contains
	}
	r.m.Changed(within, func() {})
	r.m.Tick(r.now)
}

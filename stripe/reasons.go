package stripe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// errors joins why pairs have no path.
func (d *dialer) errors() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []error
	for _, name := range slices.Sorted(maps.Keys(d.missing)) {
		all = append(all, fmt.Errorf("link %s: %s", name, d.missing[name]))
	}
	for p, t := range d.targets {
		if t.err != nil {
			all = append(all, fmt.Errorf("link %s: %w", p.link, t.err))
		}
	}
	if len(all) == 0 {
		return errors.New("no link of this host has an address of the same family as the peer's")
	}
	return errors.Join(all...)
}

// failures tells why links are not used, by name; after the end, why they were not by then. Those with a path that works are left out.
func (d *dialer) failures() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := maps.Clone(d.missing)
	pairs := slices.SortedFunc(maps.Keys(d.targets), func(a, b pair) int { return cmp.Compare(a.to, b.to) })
	for _, p := range pairs {
		t, before := d.targets[p], out[p.link]
		switch {
		case t.works:
		case t.err != nil && (before == "" || before == NotYet):
			out[p.link] = t.err.Error()
		case t.path == nil && before == "":
			out[p.link] = NotYet
		}
	}
	for _, p := range pairs {
		if d.targets[p].works {
			delete(out, p.link)
		}
	}
	return out
}

var (
	errLinkGone = errors.New("the link or its address is gone")
	errPathLost = errors.New("its connection has ended, and there is no new one yet")
)

// reason is an error in words for people. Those of package net name this end's address and port, too, which say nothing of the cause.
type reason struct {
	text  string
	cause error
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.cause }

// explain says why an attempt to reach an address failed, if the carrier has not.
func (c Carrier) explain(to netip.AddrPort, err error) error {
	var timeout net.Error
	switch {
	case err == nil || errors.As(err, new(*reason)):
		return err
	case errors.Is(err, syscall.ECONNREFUSED):
		return &reason{fmt.Sprintf("refused by the server over this link: nothing listens at %v, or a firewall refuses %s", to, c.Network()), err}
	case errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH):
		return &reason{fmt.Sprintf("no route to the server over this link (tried %v)", to), err}
	case errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded):
		return &reason{fmt.Sprintf("no answer from the server over this link (tried %v): a firewall may block %s, or the link leads elsewhere", to, c.Network()), err}
	}
	return err
}

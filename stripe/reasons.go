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

// errors joins why pairs have no path, as far as that is known.
func (d *dialer) errors() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []error
	for _, name := range slices.Sorted(maps.Keys(d.missing)) {
		all = append(all, fmt.Errorf("link %s: %s", name, d.missing[name]))
	}
	nowhere := func(p pair) bool { return noRoute(d.targets[p].err) }
	for _, p := range slices.SortedFunc(maps.Keys(d.targets), func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.link, b.link), compareBool(nowhere(a), nowhere(b)), cmp.Compare(a.to, b.to))
	}) {
		if err := d.targets[p].err; err != nil {
			all = append(all, fmt.Errorf("link %s: %w", p.link, err))
		}
	}
	return errors.Join(all...)
}

// failures tells why links of this host, or of the peer, are not used, by name; after the end, why they were not by then. Those with a path that
// works are left out.
func (d *dialer) failures(far bool) map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := maps.Clone(d.missing)
	if far {
		out = maps.Clone(d.farMissing)
	}
	beside := map[string]bool{} // a pair of the link has no route: to another network, most likely, than its own that does not answer
	worked := func(p pair) bool { return d.targets[p].path != nil }
	pairs := slices.SortedFunc(maps.Keys(d.targets), func(a, b pair) int { // what worked first: behind a NAT there are addresses that never do
		return cmp.Or(-compareBool(worked(a), worked(b)), cmp.Compare(a.to, b.to), cmp.Compare(a.link, b.link))
	})
	nameOf := func(p pair) string {
		switch {
		case !far:
			return p.link
		case worked(p):
			return d.targets[p].path.to // p.to may be a host's, of which no link has the name
		}
		return d.farNames[p.to]
	}
	for _, p := range pairs {
		t, name, from := d.targets[p], nameOf(p), ""
		if far {
			from = "from " + p.link + ": "
		}
		switch before := out[name]; {
		case t.works || name == "":
		case t.err != nil && (before == "" || !noRoute(t.err) && (before == NotYet || beside[name])):
			out[name], beside[name] = from+t.err.Error(), noRoute(t.err) && !worked(p)
		case t.err == nil && t.path == nil && (before == "" || beside[name]):
			out[name], beside[name] = NotYet, false
		}
	}
	for _, p := range pairs {
		if t := d.targets[p]; t.works || worked(p) && t.err == nil { // it is silent, and no attempt to reconnect has failed yet
			delete(out, nameOf(p))
		}
	}
	return out
}

const loopbackAlone = "loopback leads to no other host"

// apart says why no way leads from a link to any of the peer's.
func (d *dialer) apart(l Link) string {
	switch peers := d.peers(); {
	case l.loopback():
		return loopbackAlone
	case len(peers) > 0 && !slices.ContainsFunc(peers, func(p Peer) bool { return !p.loopback() }):
		return "the peer has no address but loopback, which leads to no other host"
	}
	return "it has no address of the same family as one of the peer's"
}

// seekFar notes which of the listener's links no way leads to. It is called with the dialer locked.
func (d *dialer) seekFar(links []Link, all []way) {
	d.farMissing, d.farNames = map[string]string{}, map[string]string{}
	for name := range d.heard {
		d.farMissing[name] = "the far side does not have it any more, or it is down, or has no address"
	}
	for _, p := range d.told {
		as := d.nameOf(p)
		d.farNames[as] = p.Link
		delete(d.farMissing, p.Link)
		switch {
		case slices.ContainsFunc(all, func(w way) bool { return w.to == as }):
		case p.loopback():
			d.farMissing[p.Link] = loopbackAlone
		case !slices.ContainsFunc(links, func(l Link) bool { return !l.loopback() }):
			d.farMissing[p.Link] = "this host uses no link but loopback, which leads to no other host"
		default:
			d.farMissing[p.Link] = "no link of this host has an address of the same family as one of its"
		}
	}
}

// nameOf is the name that one of the listener's links has in pairs.
func (d *dialer) nameOf(p Peer) string {
	if i := p.among(d.hosts); i >= 0 {
		return d.hosts[i].Link
	}
	return p.Link
}

var (
	errNoFamily = errors.New("no link of this host has an address of the same family as the peer's")
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

// attemptError says which address an attempt was made to.
type attemptError struct {
	error
	to netip.AddrPort
}

func (e *attemptError) Unwrap() error { return e.error }

// blame is what is said of a pair when another attempt has failed. That there is no route to an address, of a family that the network does not have perhaps, says
// little where another one of the pair has worked, or is not reached for another reason.
func (t *target) blame(err error) error {
	var is, was *attemptError
	if !noRoute(err) || !errors.As(err, &is) {
		return err
	}
	other := func(at netip.AddrPort) bool {
		return at != is.to && slices.ContainsFunc(t.tries, func(to try) bool { return to.to == at })
	}
	if t.path != nil && other(addrPort(t.path.wire.RemoteAddr())) || errors.As(t.err, &was) && !noRoute(t.err) && other(was.to) {
		return t.err
	}
	return err
}

func noRoute(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH)
}

// explain says why an attempt to reach an address failed, if the carrier has not.
func (c Carrier) explain(to netip.AddrPort, err error) error {
	var timeout net.Error
	switch {
	case err == nil || errors.As(err, new(*reason)):
		return err
	case errors.Is(err, syscall.ECONNREFUSED):
		return &reason{fmt.Sprintf("refused by the server over this link: nothing listens at %v, or a firewall refuses %s", to, c.Network()), err}
	case noRoute(err):
		return &reason{fmt.Sprintf("no route to the server over this link (tried %v)", to), err}
	case errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded):
		return &reason{fmt.Sprintf("no answer from the server over this link (tried %v): a firewall may block %s, or the link leads elsewhere", to, c.Network()), err}
	}
	return err
}

package stripe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"plait.dev/plait/stripe/internal/printable"
)

// resolve makes a peer's link of each address.
func resolve(ctx context.Context, addrs []string) ([]Peer, error) {
	if len(addrs) == 0 {
		return nil, errors.New("stripe: dial: no address; give host:port")
	}
	var out []Peer
	for i, a := range addrs {
		host, service, err := net.SplitHostPort(a)
		if err != nil {
			return nil, fmt.Errorf("stripe: dial %q: %w; give host:port", a, err)
		}
		port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
		if err != nil {
			return nil, fmt.Errorf("stripe: dial %q: %w", a, err)
		}
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, fmt.Errorf("stripe: dial %q: %w", a, err)
		}
		p := Peer{Link: host}
		switch {
		case slices.Contains(addrs[:i], a):
			continue
		case slices.ContainsFunc(out, func(q Peer) bool { return q.Link == host }):
			p.Link = a // another port of a NAT's, to another link
		}
		for _, ip := range ips {
			p.Addrs = append(p.Addrs, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
		}
		out = append(out, p)
	}
	return out, nil
}

// reachable leaves out links without an address, and those whose names a listener would not take in a hello.
func reachable(peers []Peer) []Peer {
	invalid := func(a netip.AddrPort) bool { return !a.IsValid() }
	return slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool {
		return len(p.Addrs) == 0 || slices.ContainsFunc(p.Addrs, invalid) || len(p.Link) > maxName
	})
}

// bounded leaves out what a listener has no reason to tell, too: each pair of links costs something, whether it can have a path or not. A zone is a name on that host, any text.
func bounded(peers []Peer, most int) []Peer {
	peers = reachable(peers)
	peers = peers[:min(len(peers), most)]
	for i := range peers {
		peers[i].Link = printable.Text(peers[i].Link)
		peers[i].Addrs = slices.Clone(peers[i].Addrs[:min(len(peers[i].Addrs), maxPeerAddrs)])
		for j, a := range peers[i].Addrs {
			peers[i].Addrs[j] = netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
		}
	}
	return peers
}

// hear takes the listener's list of its links. It is called with the session locked.
func (d *dialer) hear(peers []Peer) {
	peers = bounded(peers, maxPeers)
	d.lists++
	n := d.lists
	go func() {
		d.mu.Lock()
		if n > d.listed { // the last list may be the first to come here
			d.told, d.listed = peers, n
		}
		for _, p := range peers {
			if len(d.heard) < maxPaths && !p.loopback() { // which it has told for want of others
				d.heard[p.Link] = true
			}
		}
		d.mu.Unlock()
		d.changed.signal()
	}()
}

// peers are the listener's links, as Dial was told and as it tells itself. A link keeps the name it had first; what only Dial was
// told stays: the address of a NAT, for instance.
func (d *dialer) peers() []Peer {
	out := slices.Clone(d.hosts)
	for _, p := range d.told {
		i := p.among(out)
		if i < 0 {
			out = append(out, p)
			continue
		}
		out[i].Policy = p.Policy
		out[i].Addrs = append(slices.Clone(p.Addrs), slices.DeleteFunc(slices.Clone(out[i].Addrs), func(a netip.AddrPort) bool { return slices.Contains(p.Addrs, a) })...)
	}
	return out
}

// among finds the same link in a list: by name, or an address.
func (p Peer) among(list []Peer) int {
	return slices.IndexFunc(list, func(q Peer) bool {
		return q.Link == p.Link || slices.ContainsFunc(q.Addrs, func(a netip.AddrPort) bool { return slices.Contains(p.Addrs, a) })
	})
}

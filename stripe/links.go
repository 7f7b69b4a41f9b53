package stripe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is an interface of this host that is up and has addresses to send from.
type Link struct {
	Name  string
	Addrs []netip.Prefix // with the length of the subnet's prefix; those on their way out (RFC 4862, section 5.5.4: deprecated) last
}

func (l Link) loopback() bool { return l.Addrs[0].Addr().IsLoopback() }

// Links returns the links this host has now, by the order of their interfaces. Loopback is the last one.
func Links() ([]Link, error) {
	var interfaces []netlink.Link
	var addrs []netlink.Addr
	err := error(netlink.ErrDumpInterrupted)
	for tries := 0; tries < 10 && errors.Is(err, netlink.ErrDumpInterrupted); tries++ { // something changed meanwhile
		if interfaces, err = netlink.LinkList(); err == nil {
			addrs, err = netlink.AddrList(nil, netlink.FAMILY_ALL)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stripe: list interfaces and addresses: %w", err)
	}
	var links, loopback []Link
	for _, i := range interfaces {
		l := Link{Name: i.Attrs().Name}
		var deprecated []netip.Prefix
		if i.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 { // IFF_RUNNING follows up to a second later
			continue
		}
		for _, a := range addrs {
			switch p := usable(a); {
			case a.LinkIndex != i.Attrs().Index || !p.IsValid():
			case a.Flags&unix.IFA_F_DEPRECATED != 0:
				deprecated = append(deprecated, p)
			default:
				l.Addrs = append(l.Addrs, p)
			}
		}
		l.Addrs = append(l.Addrs, deprecated...)
		switch {
		case len(l.Addrs) == 0:
		case i.Attrs().RawFlags&unix.IFF_LOOPBACK != 0:
			loopback = append(loopback, l)
		default:
			links = append(links, l)
		}
	}
	return append(links, loopback...), nil
}

// Unusable says why Links does not have an interface, in words for people.
func Unusable(name string) string {
	i, err := netlink.LinkByName(name)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)):
		return "there is no such interface"
	case err != nil:
		return fmt.Sprintf("look for the interface: %v", err)
	case i.Attrs().Name != name: // the kernel finds other names of an interface, too
		return "it is another name of " + i.Attrs().Name + ": use that one"
	case i.Attrs().RawFlags&unix.IFF_UP == 0:
		return "the interface is down"
	case i.Attrs().RawFlags&unix.IFF_LOWER_UP == 0:
		return "the interface has no carrier: no cable, or no network it is connected to"
	}
	return "the interface has no address (a link-local one, fe80::, does not count)"
}

// addresses are those of this host, on links that are down and of any kind, too.
func addresses() (map[netip.Addr]bool, error) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	have := map[netip.Addr]bool{}
	for _, a := range addrs {
		addr, _ := netip.AddrFromSlice(a.IP)
		have[addr.Unmap()] = true
	}
	return have, err
}

// usable is the address if one can send from it: not one that is being checked, nor one that is only good on its own link.
func usable(a netlink.Addr) netip.Prefix {
	addr, ok := netip.AddrFromSlice(a.IP)
	ones, _ := a.Mask.Size()
	if !ok || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 || addr.Unmap().IsLinkLocalUnicast() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr.Unmap(), ones)
}

// watchers are told of changes. They share one subscription: it is three sockets with 64 KB of memory each, and a proxy has 900 connections.
var watchers struct {
	sync.Mutex
	all  map[signal]bool
	stop context.CancelFunc // of the subscription, which is there while there are any
}

// watchLinks sends a value at each change of interfaces, addresses or routes of this host, until ctx ends: who lists them after the call misses none. No rights are needed.
func watchLinks(ctx context.Context) <-chan struct{} {
	changed := newSignal()
	watchers.Lock()
	defer watchers.Unlock()
	if len(watchers.all) == 0 {
		all, stop := context.WithCancel(context.Background())
		watchers.all, watchers.stop = map[signal]bool{}, stop
		go runWatchers(all)
	}
	watchers.all[changed] = true
	context.AfterFunc(ctx, func() {
		watchers.Lock()
		defer watchers.Unlock()
		if delete(watchers.all, changed); len(watchers.all) == 0 {
			watchers.stop()
		}
	})
	return changed
}

// runWatchers subscribes until ctx ends.
func runWatchers(ctx context.Context) {
	for ctx.Err() == nil {
		if !watchOnce(ctx) {
			sleep(ctx, time.Second) // no netlink, or events were lost
		}
		tellWatchers()
	}
}

func tellWatchers() {
	watchers.Lock()
	defer watchers.Unlock()
	for changed := range watchers.all {
		changed.signal()
	}
}

// watchOnce tells until the subscription ends.
func watchOnce(ctx context.Context) bool {
	done := make(chan struct{})
	defer close(done)
	links, addrs, routes := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64), make(chan netlink.RouteUpdate, 64)
	if netlink.LinkSubscribe(links, done) != nil {
		return false
	}
	defer discard(links)
	if netlink.AddrSubscribe(addrs, done) != nil {
		return false
	}
	defer discard(addrs)
	if netlink.RouteSubscribe(routes, done) != nil {
		return false
	}
	defer discard(routes)
	tellWatchers() // of what has changed since they listed the links, if anything has
	return relay(ctx, links, addrs, routes, tellWatchers)
}

// discard takes what still comes of a subscription that ends: its goroutine hears of that only while there is room for another event, and closes the channel then.
func discard[T any](events <-chan T) {
	go func() {
		for range events {
		}
	}()
}

// routesEvery is the least time between two words of routes. Whoever is told lists all interfaces and addresses, and on a BGP router routes change a thousand times a second.
const routesEvery = 100 * time.Millisecond

// relay tells of events until there are no more.
func relay(ctx context.Context, links <-chan netlink.LinkUpdate, addrs <-chan netlink.AddrUpdate, routes <-chan netlink.RouteUpdate, tell func()) bool {
	var told time.Time
	var due <-chan time.Time
	for ok := true; ok; {
		select {
		case _, ok = <-links:
		case _, ok = <-addrs:
		case _, ok = <-routes:
			if wait := routesEvery - time.Since(told); wait > 0 {
				if due == nil {
					due = time.After(wait)
				}
				continue
			}
		case <-due:
		case <-ctx.Done():
			return true
		}
		told, due = time.Now(), nil
		tell()
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// source is where a path begins: an address of a link.
type source struct {
	link  string
	addr  netip.Addr
	small bool // its packets are to be
}

// from picks the address of a link to reach an address of the peer from: of the same family, best in the same subnet, and with IPv6 unique local ones (RFC 4193) from
// such ones, others from others.
func (l Link) from(to netip.Addr) (s source, near bool) {
	s.link = l.Name
	for _, a := range l.Addrs {
		switch {
		case a.Addr().Is4() != to.Is4() || a.Addr().IsLoopback() != to.IsLoopback():
		case a.Contains(to) && a.Bits() < to.BitLen() || a.Addr() == to:
			return source{link: l.Name, addr: a.Addr()}, true
		case !s.addr.IsValid(), to.Is6() && s.addr.IsPrivate() != to.IsPrivate() && a.Addr().IsPrivate() == to.IsPrivate():
			s.addr = a.Addr()
		}
	}
	return s, false
}

// Peer is a link of the peer, with the addresses it listens on.
type Peer struct {
	Link   string
	Addrs  []netip.AddrPort
	Policy Policy `json:",omitzero"` // the peer's, of this link
}

func (p Peer) loopback() bool { return p.Addrs[0].Addr().IsLoopback() }

// maxPeers, maxPeerAddrs and maxName bound what a listener may announce.
const (
	maxPeers     = 32
	maxPeerAddrs = 4
	maxName      = 256 // bytes; a host's, if Dial was told the address: at most 253
)

// announce makes the list for the peer: where links of this host can be reached at a port. Loopback is of use only to this
// host, so it is told only if there is nothing else.
func announce(links []Link, only func(Link) bool, port uint16) []Peer {
	var out []Peer
	for _, l := range links {
		if only != nil && !only(l) || l.loopback() && len(out) > 0 || len(out) == maxPeers {
			continue
		}
		p := Peer{Link: l.Name}
		for _, a := range some(l.Addrs) {
			p.Addrs = append(p.Addrs, netip.AddrPortFrom(a.Addr(), port))
		}
		out = append(out, p)
	}
	return out
}

// some are as many addresses of a link as are told; if that is not all, of both families in turn: a dialer may have one of them only.
func some(addrs []netip.Prefix) []netip.Prefix {
	if len(addrs) <= maxPeerAddrs {
		return addrs
	}
	of, nth := map[bool]int{}, map[netip.Prefix]int{}
	for _, a := range addrs {
		nth[a] = of[a.Addr().Is4()]
		of[a.Addr().Is4()]++
	}
	addrs = slices.Clone(addrs)
	slices.SortStableFunc(addrs, func(a, b netip.Prefix) int { return cmp.Compare(nth[a], nth[b]) })
	return addrs[:maxPeerAddrs]
}

package route

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Ability is one thing the routes need of the kernel. Err says that it lacks, and what to do.
type Ability struct {
	Name string
	Err  error
}

// Probe tries out, in a network namespace made for it and gone afterwards, all that plait would put into the kernel.
func Probe() []Ability {
	out := make(chan []Ability)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine and takes the namespace along
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			out <- []Ability{{"network namespaces", fmt.Errorf("make a network namespace to try things in: %w; this needs root or the capability CAP_SYS_ADMIN", err)}}
			return
		}
		out <- probe()
	}()
	return <-out
}

// probe tries in this thread's namespace.
func probe() []Ability {
	var list []Ability
	k := &Kernel{}
	t, err := openTunsrc()
	list = append(list, Ability{"SRv6", err})
	if err == nil {
		k.tunsrc = t
		defer t.Close()
		list = append(list, Ability{"tunnel source", probeTunsrc(t)})
	}
	if k.route, err = dial(); err != nil {
		return append(list, Ability{"routing netlink", err})
	}
	defer k.route.Close()
	link, err := k.makeLink()
	if err != nil {
		return append(list, Ability{"an interface to try on", err})
	}
	sid, client6, client4 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:1::"), netip.MustParseAddr("192.0.2.0")
	for _, a := range []netip.Addr{client6, client4} {
		name := map[bool]string{true: "IPv4", false: "IPv6"}[a.Is4()]
		h := kernelNexthop{way{family(a), sid, link}, firstNexthop + uint32(family(a))}
		list = append(list,
			k.try(name+" next hops into SRv6", h),
			k.try(name+" routes into SRv6", kernelRoute{place: placeOf(4711, netip.PrefixFrom(a, 24).Masked(), Metric), nexthop: h.id, sid: sid, link: link}),
			k.try(name+" rules of plait's own", kernelRule{source: a, table: 4711, priority: LookupPriority}),
			k.try(name+" rules that say unreachable", kernelRule{source: a, unreachable: true, priority: UnreachablePriority}),
			k.try(name+" addresses of plait's own", kernelAddress{a.Next(), link}))
	}
	return list
}

// try makes an object and finds it again as plait's.
func (k *Kernel) try(name string, o object) Ability {
	m := o.request(nil, Add)
	m.Header.Flags |= netlink.Acknowledge
	if _, err := k.route.get(m); err != nil {
		return Ability{name, fmt.Errorf("add %v: %w%s", o, err, advice(err))}
	}
	s, err := k.read()
	if err != nil {
		return Ability{name, err}
	}
	found := false
	switch o := o.(type) {
	case kernelNexthop:
		found = s.nexthops[o.way] == o.id
	case kernelRoute:
		is := s.routes.find(o.place)
		found = is != nil && s.routes.whole(is) == o
	case kernelRule:
		found = s.rules[o]
	case kernelAddress:
		found = s.addresses[o]
	}
	if !found {
		return Ability{name, fmt.Errorf("find %v again: the kernel does not keep who made it; Linux 5.18 or newer does", o)}
	}
	return Ability{Name: name}
}

func probeTunsrc(t *tunsrc) error {
	want := netip.MustParseAddr("2001:db8::2")
	if err := t.set(want); err != nil {
		return fmt.Errorf("set the tunnel source: %w%s", err, advice(err))
	}
	if got, err := t.current(); err != nil || got != want {
		return fmt.Errorf("set the tunnel source to %v: it is %v (%w)", want, got, err)
	}
	return nil
}

// makeLink makes an interface with a carrier: a dummy, or where the kernel has none, a pair of veth.
func (k *Kernel) makeLink() (uint32, error) {
	const name = "probe"
	var failed []error
	for _, of := range []string{"dummy", "veth"} {
		info := body{}.attribute(unix.IFLA_INFO_KIND, []byte(of)...)
		err := k.setUp(netlink.Create|netlink.Excl, 0, body{}.attribute(unix.IFLA_IFNAME, append([]byte(name), 0)...).attribute(unix.IFLA_LINKINFO, info...))
		if err != nil {
			failed = append(failed, fmt.Errorf("make a %s: %w", of, err))
			continue
		}
		b, err := k.getLink(name)
		if err != nil {
			return 0, err
		}
		peer := uint32(0)
		attributes(b[unix.SizeofIfInfomsg:], func(ad *netlink.AttributeDecoder) {
			if ad.Type() == unix.IFLA_LINK {
				peer = ad.Uint32()
			}
		})
		if of == "veth" {
			err = k.setUp(0, peer, nil)
		}
		return native.Uint32(b[4:]), err
	}
	return 0, errors.Join(failed...)
}

// setUp makes an interface, or takes one that is there, and sets it up.
func (k *Kernel) setUp(flags netlink.HeaderFlags, link uint32, more body) error {
	b := make(body, unix.SizeofIfInfomsg)
	native.PutUint32(b[4:], link)
	native.PutUint32(b[8:], unix.IFF_UP)
	native.PutUint32(b[12:], unix.IFF_UP) // the flags to change
	_, err := k.route.get(append(b, more...).request(unix.RTM_NEWLINK, netlink.Acknowledge|flags))
	return err
}

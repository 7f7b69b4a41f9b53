package route

import (
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// dead are the flags of a next hop whose link is down (struct rtmsg and struct rtnexthop).
const dead = unix.RTNH_F_DEAD

// theirRoute is a route of the main table that is not plait's. Without forwards, packets that meet it go nowhere.
type theirRoute struct {
	kernelRoute
	forwards bool
}

// readTheirs lists them; the list is not nil.
func (k *Kernel) readTheirs() (all []theirRoute, err error) {
	all = []theirRoute{}
	for _, f := range families {
		before := len(all)
		err = k.route.each(body{f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}.number(unix.RTA_TABLE, unix.RT_TABLE_MAIN).request(unix.RTM_GETROUTE, 0), func() { all = all[:before] }, func(b []byte) {
			if len(b) >= unix.SizeofRtMsg && b[5] == Protocol { // most may be, and need not be read again
				return
			}
			r, _, ok := readRoute(b)
			if !ok || r.table != unix.RT_TABLE_MAIN || b[2] != 0 || b[3] != 0 || b[7] == unix.RTN_THROW || native.Uint32(b[8:])&dead != 0 {
				return
			}
			all = append(all, theirRoute{r, b[7] == unix.RTN_UNICAST})
		})
		if err != nil {
			return nil, fmt.Errorf("list routes of the main table: %w", err)
		}
	}
	return all, nil
}

// behind finds the way to a next hop among the routes that are not plait's: where the next hop of a best path is in the prefix of one, that one is the kernel's
// answer, and was made by what is behind it. Of several gateways it is the first that is well.
func (k *Kernel) behind(next netip.Addr) (best theirRoute, err error) {
	if k.theirs == nil {
		if k.theirs, err = k.readTheirs(); err != nil {
			return best, err
		}
	}
	for _, r := range k.theirs {
		if !r.prefix().Contains(next) {
			continue
		}
		if best.table == 0 || r.bits > best.bits || r.bits == best.bits && r.metric < best.metric {
			best = r
		}
	}
	return best, nil
}

// firstHop reads the first one of several next hops that is not dead.
func firstHop(b []byte) (gateway netip.Addr, link uint32) {
	for len(b) >= unix.SizeofRtNexthop {
		size := int(native.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			break
		}
		if uint32(b[2])&dead == 0 {
			attributes(b[unix.SizeofRtNexthop:size], func(ad *netlink.AttributeDecoder) { gateway = gatewayOf(ad, gateway) })
			return gateway, native.Uint32(b[4:])
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return gateway, 0
}

// gatewayOf reads the attribute of a gateway; of others the one that was read stays.
func gatewayOf(ad *netlink.AttributeDecoder, was netip.Addr) netip.Addr {
	switch ad.Type() {
	case unix.RTA_GATEWAY:
		return address(ad)
	case unix.RTA_VIA:
		via := ad.Bytes()
		was, _ = netip.AddrFromSlice(via[min(2, len(via)):])
	}
	return was
}

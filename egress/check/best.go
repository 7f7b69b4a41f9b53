package check

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

const (
	doMain = "on that router see: ip -6 route get TARGET (IPv4: ip route get) from this address iif INTERFACE, which must lead to an exit's VRF or peer; FRR 8.4 keeps what an exit announces out of the main table, " +
		"for which kernel.sh of plait egress render has rules"
	doRoute = "see ip -6 route get TARGET (IPv4: ip route get): let the border routers announce what their exits do in the default table, too, or set a default route"
)

// own is the address that connections to a target begin from: for IPv6 that of the configuration, for IPv4 what the kernel would take.
func (in Input) own(target netip.Addr) (netip.Addr, error) {
	if target.Is6() {
		return in.Address, nil
	}
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(target, 9))) // sends nothing
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	own := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
	for _, x := range in.Exits {
		if slices.Contains(x.Addresses, own) {
			return own, fmt.Errorf("the kernel begins from %v, which is of exit %s", own, x.Name)
		}
	}
	return own, nil
}

// bestTo sends packets to targets of one family from this host's own address.
func bestTo(ctx context.Context, in Input, targets []netip.Addr, through map[netip.Addr]trace) (Result, error) {
	what, own := "to "+joined(targets), netip.Addr{}
	no := func(outcome Outcome, err error, do string) (Result, error) {
		return Result{outcome, "", "best path", fmt.Sprintf("%s: %v", what, err), do}, context.Cause(ctx)
	}
	own, err := in.own(targets[0])
	if err != nil {
		return no(Failed, err, doRoute)
	}
	what = fmt.Sprintf("from %v %s", own, what)
	p, err := newProber(ctx, own, in.Address, false)
	if err != nil {
		return no(Unknown, err, "")
	}
	defer p.close()
	t, err := p.trace(ctx, netip.Addr{}, targets)
	if err != nil {
		return no(Failed, err, unsent(err, doRoute))
	}
	return t.reaches(what, through), nil
}

// best is about the best path: what leaves from this host's own address, by the main table. Connections begin there. Packets go to destinations of each exit and family in
// turn; through is what was answered about them through exits.
func best(ctx context.Context, in Input, through map[netip.Addr]trace) (out []Result, err error) {
	var tried []netip.Addr
	for _, x := range in.Exits {
		for _, is6 := range []bool{true, false} {
			var targets []netip.Addr
			for _, s := range x.Samples {
				if a, usable := s.target(); usable && a.Is6() == is6 && len(targets) < bestTargets && !slices.Contains(tried, a) {
					tried, targets = append(tried, a), append(targets, a)
				}
			}
			if len(targets) == 0 {
				continue
			}
			r, err := bestTo(ctx, in, targets, through)
			if err != nil {
				return out, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}

// bestTargets are destinations of an exit that the best path is tried to.
const bestTargets = 3

// reaches says whether packets that are not encapsulated get on. Routers inside answer as well as those outside. One that has no way on may be the destination's own, unless
// others have answered about the destination through an exit.
func (t trace) reaches(what string, through map[netip.Addr]trace) Result {
	who := t.responders()
	no, refused := t.refused()
	switch {
	case slices.ContainsFunc(t, func(a answer) bool { return a.kind == reply }):
		return Result{OK, "", "best path", fmt.Sprintf("%s: %v replies", what, who[len(who)-1]), ""}
	case refused && no.from == who[len(who)-1] && through[no.packet.to].beyond(no.from):
		return Result{Failed, "", "best path", fmt.Sprintf("%s: %v %s, and through an exit packets get on: the best path ends there", what, no.from, no.refusal.to(no.packet.to.String())), no.refusal.inside(doMain)}
	case len(who) > 1:
		return Result{OK, "", "best path", fmt.Sprintf("%s: %d routers answer, the last %v", what, len(who), who[len(who)-1]), ""}
	case len(who) == 1:
		return Result{Unknown, "", "best path", fmt.Sprintf("%s: only %v answers", what, who[0]), ""}
	}
	return Result{Unknown, "", "best path", what + ": nothing answers", ""}
}

// beyond says whether packets got farther than a router, which did not refuse them.
func (t trace) beyond(router netip.Addr) bool {
	return slices.ContainsFunc(t, func(a answer) bool { return a.from != router }) &&
		!slices.ContainsFunc(t, func(a answer) bool { return a.from == router && a.kind == unreachable })
}

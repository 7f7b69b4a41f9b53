package check

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"plait.dev/plait/egress/route"
)

// trace is what came back of echo requests through a SID.
type trace []answer

// inside are the answers about packets that had come out of their encapsulation.
func (t trace) inside() trace {
	return slices.DeleteFunc(slices.Clone(t), func(a answer) bool { return a.outer })
}

// responders are who answered, the nearest first.
func (t trace) responders() (out []netip.Addr) {
	near := slices.SortedStableFunc(slices.Values(t.inside()), func(a, b answer) int { return a.hopLimit - b.hopLimit })
	for _, a := range near {
		if !slices.Contains(out, a.from) {
			out = append(out, a.from)
		}
	}
	return out
}

// forwarded says whether somebody behind the border router answered: the target, or a second one. A single router may be the border router itself.
func (t trace) forwarded() bool {
	return len(t.responders()) > 1 || slices.ContainsFunc(t, func(a answer) bool { return a.kind == reply })
}

// refused is the answer of a router that does not pass packets on.
func (t trace) refused() (answer, bool) {
	i := slices.IndexFunc(t, func(a answer) bool { return a.kind == unreachable && !a.outer })
	if i < 0 {
		return answer{}, false
	}
	return t[i], true
}

// deepest is the request that got farthest and was answered.
func (t trace) deepest() (d packet) {
	for _, a := range t.inside() {
		if a.kind == reply && (d.hopLimit == 0 || a.hopLimit < d.hopLimit) {
			return a.packet
		}
		if a.kind == expired && a.hopLimit > d.hopLimit {
			d = a.packet
		}
	}
	return d
}

func joined(addresses []netip.Addr) string {
	text := make([]string, len(addresses))
	for i, a := range addresses {
		text[i] = a.String()
	}
	return strings.Join(text, ", ")
}

const (
	doDrop = "on its border router see: ip -6 route show SID (seg6local End.DT6, End.DT4 or End.DT46, with the exit's table), ip -6 route show vrf of the exit (the target, and the way back " +
		"to this address), sysctl net.vrf.strict_mode and forwarding; then whether the peer accepts packets from this address, and whether this host's own firewall lets ICMP in"
	doBack = "see that the announced prefixes have the exit's address, that the border router and its peer have a way back to it, and that the peer does not drop what comes from there (BCP 38)"
	doSize = "raise the MTU of the network between this host and the border router to 1564, or lower it on this host's interface to what passes: connections then know"
)

// decapsulates says whether packets come out of the SID, and whether they get on.
func (t trace) decapsulates(exit, through string, targets []netip.Addr) []Result {
	who := t.responders()
	if len(who) == 0 {
		why, do := t.before()
		return []Result{{Failed, exit, "answer", fmt.Sprintf("%s: nothing answers echo requests of 1 to %d hops to %s: routes look right, but packets are dropped%s",
			through, maxHops, joined(targets), why), do}}
	}
	out := []Result{{OK, exit, "answer", fmt.Sprintf("%s: packets come out of their encapsulation; %v answers first", through, who[0]), ""}}
	no, refused := t.refused()
	kept, outcome := t.kept(targets)
	replies := slices.IndexFunc(t, func(a answer) bool { return a.kind == reply })
	switch {
	case outcome != OK && len(who) > 1:
		return append(out, Result{outcome, exit, "forward", fmt.Sprintf("%s: %d routers answer, and %v %s", through, len(who), kept.from, kept.refusal.to(kept.packet.to.String())), doFilter})
	case replies >= 0:
		return append(out, Result{OK, exit, "forward", fmt.Sprintf("%s: %v replies", through, t[replies].from), ""})
	case t.forwarded():
		return append(out, Result{OK, exit, "forward", fmt.Sprintf("%s: %d routers answer, the last %v", through, len(who), who[len(who)-1]), ""})
	case refused:
		return append(out, Result{Failed, exit, "forward", fmt.Sprintf("%s: %v %s: packets end there", through, no.from, no.refusal.to(no.packet.to.String())), no.refusal.inside(doBehind)})
	}
	return append(out, Result{Unknown, exit, "forward", fmt.Sprintf("%s: only %v answers; if it is the border router, nothing proves that packets get on from there", through, who[0]), doBehind})
}

// sized says whether a packet of this size gets as far as a small one did.
func (t trace) sized(exit, through string, size int) Result {
	small := ""
	if size < fullPacket {
		small = fmt.Sprintf("; with an MTU of %d on the interface, and on the way to the SID, %d would be possible", fullPacket+overhead, fullPacket)
	}
	for _, a := range t.inside() {
		if a.kind == tooBig {
			return Result{OK, exit, "size", fmt.Sprintf("%s: %v behind the SID takes %d bytes at most and says so, which connections adapt to", through, a.from, a.mtu), ""}
		}
	}
	if len(t.inside()) == 0 {
		why, _ := t.before()
		return Result{Failed, exit, "size", fmt.Sprintf("%s: packets of %d bytes vanish, small ones do not%s", through, size, why), doSize}
	}
	return Result{OK, exit, "size", fmt.Sprintf("%s: packets of %d bytes pass%s", through, size, small), ""}
}

// probe sends packets through a SID to targets of one family, and adds what comes back to answers.
func probe(ctx context.Context, in Input, x Exit, sid netip.Addr, targets []netip.Addr, answers map[netip.Addr]trace) ([]Result, error) {
	source, has := x.source(targets[0])
	if !in.On {
		source, has = in.Address, targets[0].Is6()
	}
	through := fmt.Sprintf("SID %v from %v", sid, source)
	if !has {
		return []Result{{Unknown, x.Name, "answer", fmt.Sprintf("SID %v: there is no address to send to %v from", sid, targets[0]), ""}}, nil
	}
	p, err := newProber(ctx, source, in.Address, !in.On)
	if err != nil {
		return []Result{{Unknown, x.Name, "answer", err.Error(), ""}}, nil
	}
	defer p.close()
	t, err := p.trace(ctx, sid, targets)
	if err != nil {
		return []Result{{Failed, x.Name, "answer", err.Error(), unsent(err, reinstall)}}, context.Cause(ctx)
	}
	for _, a := range t.inside() {
		answers[a.to] = append(answers[a.to], a)
	}
	out := t.decapsulates(x.Name, through, targets)
	if len(t.responders()) == 0 && in.On && source.Is6() {
		if err := otherwise(ctx, in, sid, targets, &out[0]); err != nil {
			return out, err
		}
	}
	if len(t.responders()) == 0 && source.Is4() {
		dropped(in.Interface, &out[0])
	}
	like := t.deepest()
	link, err := net.InterfaceByName(in.Interface)
	if like.hopLimit == 0 || err != nil || !in.On {
		return append(out, Result{Unknown, x.Name, "size", through + ": not tried: that needs packets that the kernel encapsulates and somebody answers", ""}), nil
	}
	size := min(fullPacket, link.MTU-overhead)
	big, err := p.full(ctx, sid, like, size)
	if err != nil {
		return append(out, Result{Failed, x.Name, "size", err.Error(), doSize}), context.Cause(ctx)
	}
	return append(out, big.sized(x.Name, through, size)), nil
}

// otherwise finds out more about a silent SID: the same packets from this host's own address, encapsulated with a hop limit of their own. Kernels copy the hop limit of
// an IPv6 packet into the header around it, so a border router several hops away cannot be asked for an answer of its own in the ordinary way.
func otherwise(ctx context.Context, in Input, sid netip.Addr, targets []netip.Addr, r *Result) error {
	p, err := newProber(ctx, in.Address, in.Address, true)
	if err != nil {
		return nil // it only adds to what is known
	}
	defer p.close()
	t, _ := p.trace(ctx, sid, targets)
	if who := t.responders(); len(who) > 0 {
		r.Found += fmt.Sprintf("; but from %v, an address of no exit, packets come out of the SID: %s answer", in.Address, joined(who))
		r.Do = doBack
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// way is how encapsulated packets, which come from this host's own address, get to a SID, if they do. In mode observe the way that reflectors tell of is not in the kernel.
func way(v *route.View, in Input, x Exit, sid netip.Addr, told netip.Prefix) (_ Result, there bool) {
	w, err := v.Find(in.Address, sid)
	_, other := v.Find(netip.Addr{}, sid)
	switch {
	case err != nil && other == nil:
		return Result{Failed, x.Name, "way", fmt.Sprintf("SID %v, from %v: %v; a rule takes what comes from there another way than the main table's", sid, in.Address, err),
			"see ip -6 rule: leave this host's own address out of the rule that stands before the main table's, or let the table it names lead to SIDs"}, false
	case err != nil && !in.On && told.IsValid():
		return Result{Unknown, x.Name, "way", fmt.Sprintf("SID %v: only in mode on: the reflectors tell of %v, and this host has no other way there", sid, told),
			"set a route to it by hand for as long as you look, to have the SID tried before mode on"}, false
	case err != nil:
		return Result{Failed, x.Name, "way", fmt.Sprintf("SID %v: %v", sid, err), "let its border router announce its locator to the reflectors, or set a route to it by hand"}, false
	case w.SID.IsValid():
		return Result{Failed, x.Name, "way", fmt.Sprintf("SID %v: %v encapsulates once more", sid, w), "let its border router announce its locator in the default table"}, true
	}
	if w.Interface != in.Interface {
		return Result{Unknown, x.Name, "way", fmt.Sprintf("SID %v: %v; flows are watched on %s alone: those that leave here are not measured, and that the exit fails them only BGP and the kernel notice", sid, w, in.Interface),
			"give in the configuration the interface that packets leave by"}, true
	}
	return Result{OK, x.Name, "way", fmt.Sprintf("SID %v: %v", sid, w), ""}, true
}

// through looks at each SID of an exit, and sends packets through it if that can be. What comes back it adds to answers, by destination.
func through(ctx context.Context, v *route.View, in Input, x Exit, answers map[netip.Addr]trace, doing func(string)) (out []Result, err error) {
	type group struct {
		sid netip.Addr
		is4 bool
		way netip.Prefix
	}
	var groups []group
	targets, ways := map[group][]netip.Addr{}, map[netip.Addr]bool{}
	for _, s := range x.Samples {
		g := group{s.SID, s.Prefix.Addr().Is4(), s.Way}
		if _, there := targets[g]; !there {
			groups = append(groups, g)
			targets[g] = nil
		}
		if a, usable := s.target(); usable {
			targets[g] = append(targets[g], a)
		}
	}
	for i, g := range groups {
		doing(fmt.Sprintf("SID %v (%d of %d)", g.sid, i+1, len(groups)))
		if _, looked := ways[g.sid]; !looked {
			r, there := way(v, in, x, g.sid, g.way)
			ways[g.sid] = there
			out = append(out, r)
		}
		if len(targets[g]) == 0 || !ways[g.sid] || in.On && !in.Settled {
			out = append(out, Result{Unknown, x.Name, "answer", fmt.Sprintf("SID %v: nothing to send to through it now", g.sid), ""})
			continue
		}
		more, err := probe(ctx, in, x, g.sid, targets[g], answers)
		if out = append(out, more...); err != nil {
			return out, err
		}
	}
	if more := x.SIDs - len(ways); more > 0 {
		out = append(out, Result{Unknown, x.Name, "way", fmt.Sprintf("%d more SIDs were not tried", more), ""})
	}
	return out, nil
}

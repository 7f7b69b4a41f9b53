// Package check finds out whether packets really leave by each exit: it compares the kernel's state with the plan, and sends packets through every SID. What looks
// right everywhere and drops is found by nobody else. It changes nothing on the host. docs/egress/check.md says what each check means.
//
// The tests need network namespaces:
//
//	sudo PLAIT_TEST=netns scripts/go test ./egress/check
package check

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/route"
)

// Outcome of a check.
type Outcome string

// The outcomes. Unknown is what could not be looked at, or proves nothing either way.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"
	Unknown Outcome = "unknown"
)

// Result is one line.
type Result struct {
	Outcome Outcome `json:"outcome"`
	// Exit by its name; empty: it is about all of them.
	Exit  string `json:"exit,omitempty"`
	Check string `json:"check"`
	Found string `json:"found"`
	// Do is what to do about it; empty: nothing.
	Do string `json:"do,omitempty"`
}

// Input is what a running plait knows.
type Input struct {
	// On: what the plan says is in the kernel. Settled: the reflectors have told all, and it is there by now.
	On, Settled bool
	// Interface that has the exits' addresses, and Address, which tunnels come from.
	Interface string
	Address   netip.Addr
	Sessions  []Session
	Exits     []Exit
}

// Session with a reflector.
type Session struct {
	Reflector netip.Addr
	Up        bool
	State     string // in words, with what was wrong last
}

// Exit as the plan has it.
type Exit struct {
	egress.Exit
	Routes, SIDs int
	// Refused are the routes it would have otherwise.
	Refused []egress.Refusal
	// Samples of its routes: a few for each SID and address family.
	Samples []Sample
}

// Sample is a route of an exit.
type Sample struct {
	Prefix netip.Prefix
	SID    netip.Addr
	// Way is the prefix of the plan's route to the SID in the main table; invalid: there is none.
	Way netip.Prefix
}

// target is an address in the prefix to send something to; nobody need have it. There is none in ::/0.
func (s Sample) target() (netip.Addr, bool) {
	a := s.Prefix.Addr()
	if s.Prefix.Bits() == 0 {
		return a, false
	}
	if next := a.Next(); s.Prefix.Contains(next) {
		a = next
	}
	return a, a.IsGlobalUnicast()
}

// again is how long to wait before what differs is compared once more: the reflectors may just have told something.
const (
	again  = time.Second
	tries  = 3
	atMost = 5 // examples in a line
)

func sessions(in Input) (out []Result) {
	for _, s := range in.Sessions {
		r := Result{OK, "", "session", fmt.Sprintf("reflector %v: %s", s.Reflector, s.State), ""}
		if !s.Up {
			r.Outcome, r.Do = Failed, "see plait egress sessions; the reflector must have this host as its client, with the same AS, and password or TCP-AO keys"
		}
		out = append(out, r)
	}
	return out
}

// routes is about what reflectors tell of an exit.
func routes(x Exit) []Result {
	out := []Result{{OK, x.Name, "routes", fmt.Sprintf("%d routes, to %d SIDs", x.Routes, x.SIDs), ""}}
	if x.Routes == 0 {
		out[0].Outcome, out[0].Do = Failed, "see whether the exit's border router has a session with its peer, exports routes with "+x.KnownBy()+
			", and announces its locator; plait egress sessions tells how many VPN routes the reflectors have"
	}
	for _, r := range x.Refused {
		out = append(out, Result{Failed, x.Name, "routes", fmt.Sprintf("refused: %d routes: %v (last: %v, SID %v)", r.Routes, r.Reason, r.Prefix, r.SID), doRefused(r.Reason)})
	}
	return out
}

// doRefused is what to do about routes that the plan does not use.
func doRefused(why egress.Reason) string {
	switch why {
	case egress.NotUnicast:
		return "filter what comes from the peer at the exit's border router: hosts send to no such prefixes"
	case egress.OthersSID:
		return "see sids of the other exit in the configuration, and why routes with this exit's route target have that SID at the border router"
	case egress.TooManySIDs:
		return "let the border router have one SID for each VRF (FRR: sid vpn per-vrf export), or for each neighbour, and not for each route"
	}
	return "see the exit's locators in the configuration and the SIDs of its border router"
}

// sameSID finds exits whose packets leave by one and the same way, whatever their names: their routes lead to one SID.
func sameSID(exits []Exit) (out []Result) {
	type of struct {
		sid netip.Addr
		is4 bool
	}
	first, told := map[of]string{}, map[[2]string]bool{}
	for _, x := range exits {
		for _, s := range x.Samples {
			k := of{s.SID, s.Prefix.Addr().Is4()}
			other, known := first[k]
			switch {
			case !known:
				first[k] = x.Name
			case other != x.Name && !told[[2]string{x.Name, other}]:
				told[[2]string{x.Name, other}] = true
				out = append(out, Result{Failed, x.Name, "routes", fmt.Sprintf("SID %v is that of exit %s, too: what leaves by one leaves by the other", s.SID, other),
					"give each exit a VRF of its own at the border router, or a SID for each neighbour"})
			}
		}
	}
	return out
}

// kernel compares what the kernel has with the plan. What differs is compared again with what the plan is then: ask tells.
func kernel(ctx context.Context, v *route.View, in Input, ask func() (Input, error)) (Input, []Result, error) {
	for try := 1; ; try++ {
		out := compare(v, in)
		if try == tries || !slices.ContainsFunc(out, func(r Result) bool { return r.Outcome == Failed }) {
			return in, out, nil
		}
		select {
		case <-ctx.Done():
			return in, nil, context.Cause(ctx)
		case <-time.After(again):
		}
		var err error
		if in, err = ask(); err != nil {
			return in, nil, err
		}
	}
}

// elsewhere leaves out samples that lead to this host itself: such packets stay here, whatever an exit announces, and this host's own replies would prove the exit.
func elsewhere(ask func() (Input, error)) func() (Input, error) {
	return func() (Input, error) {
		in, err := ask()
		if err != nil {
			return in, err
		}
		own, err := net.InterfaceAddrs()
		if err != nil {
			return in, fmt.Errorf("list the addresses of this host: %w", err)
		}
		in.Exits = slices.Clone(in.Exits)
		for i := range in.Exits {
			in.Exits[i].Samples = slices.DeleteFunc(slices.Clone(in.Exits[i].Samples), func(s Sample) bool {
				to, _ := s.target()
				return slices.ContainsFunc(own, func(a net.Addr) bool { return to.String() == a.(*net.IPNet).IP.String() })
			})
		}
		return in, nil
	}
}

// Run does all checks. ask tells what a running plait knows now; doing hears what takes seconds.
func Run(ctx context.Context, ask func() (Input, error), doing func(string)) ([]Result, error) {
	doing("what the kernel has")
	ask = elsewhere(ask)
	in, err := ask()
	if err != nil {
		return nil, err
	}
	v, err := route.OpenView()
	if err != nil {
		return []Result{{Failed, "", "kernel", err.Error(), "run plait doctor"}}, nil
	}
	defer v.Close()
	if _, err := net.InterfaceByName(in.Interface); in.On && err != nil {
		out := append(sessions(in), Result{Failed, "", "kernel", fmt.Sprintf("find interface %s: %v: no exit is in use", in.Interface, err),
			"bring it back, or correct interface in the configuration: ip link shows which there are"})
		for _, x := range in.Exits {
			out = append(out, routes(x)...)
		}
		return out, nil
	}
	var host []Result
	switch {
	case !in.On:
		host = []Result{{Unknown, "", "kernel", "mode observe: nothing of the plan is in the kernel; packets are sent from this host's own address", ""}}
	case !in.Settled:
		host = []Result{{Unknown, "", "kernel", "the reflectors have not told all their routes yet: the kernel has what was there before", "wait half a minute"}}
	default:
		if in, host, err = kernel(ctx, v, in, ask); err != nil {
			return nil, err
		}
	}
	out, answers := slices.Concat(sessions(in), host, sameSID(in.Exits)), map[netip.Addr]trace{}
	for i, x := range in.Exits {
		out = append(out, routes(x)...)
		more, err := through(ctx, v, in, x, answers, func(s string) { doing(fmt.Sprintf("exit %s (%d of %d), %s", x.Name, i+1, len(in.Exits), s)) })
		if err != nil {
			return out, err
		}
		out = append(out, more...)
	}
	if !in.On || !in.Settled {
		return out, nil
	}
	doing("best path")
	more, err := best(ctx, in, answers)
	return append(out, more...), err
}

package daemon

import (
	"context"
	"net/http"
	"net/netip"

	"plait.dev/plait/egress/bgp"
	"plait.dev/plait/egress/check"
)

// How much of a plan is tried: packets are sent to samplesPerSID destinations of an address family through each of at most sampledSIDs SIDs of an exit.
const (
	samplesPerSID = 3
	sampledSIDs   = 64
)

// CheckResult is one line of plait egress check.
type CheckResult = check.Result

// CheckFailed is the outcome for which plait egress check ends with status 1.
const CheckFailed = check.Failed

// samples takes some routes of each exit, and counts them and their SIDs. With a full table that takes half a second, so it reads the plan under writing: who judges
// failures does not wait for it.
func (x *exits) samples(out []check.Exit) {
	x.writing.Lock()
	defer x.writing.Unlock()
	type group struct {
		exit *check.Exit
		sid  netip.Addr
		is4  bool
	}
	byTable, taken, sids := map[uint32]*check.Exit{}, map[group]int{}, map[*check.Exit]map[netip.Addr]bool{}
	for i := range out {
		byTable[out[i].Table] = &out[i]
		sids[&out[i]] = map[netip.Addr]bool{}
	}
	for e := range x.plan.Entries() {
		of := byTable[e.Table]
		if of == nil {
			continue
		}
		of.Routes++
		if !sids[of][e.SID] {
			sids[of][e.SID] = true
			of.SIDs++
		}
		g := group{of, e.SID, e.Prefix.Addr().Is4()}
		if taken[g] == samplesPerSID || taken[g] == 0 && of.SIDs > sampledSIDs || e.Prefix.Bits() == 0 && taken[g] > 0 {
			continue
		}
		taken[g]++
		way, _ := x.plan.Main(e.SID)
		of.Samples = append(of.Samples, check.Sample{Prefix: e.Prefix, SID: e.SID, Way: way})
	}
}

// checkInput is what the checks begin from.
func (x *exits) checkInput() check.Input {
	in := check.Input{On: x.config.Mode == On, Interface: x.config.Interface, Address: x.config.Address}
	for _, s := range x.speaker.Sessions() {
		state := s.State.String()
		if s.LastError != "" {
			state += "; last error: " + s.LastError
		}
		in.Sessions = append(in.Sessions, check.Session{Reflector: s.Reflector, Up: s.State == bgp.Established, State: state})
	}
	x.mu.Lock()
	refusals := x.plan.Refusals()
	x.mu.Unlock()
	in.Settled = x.settled.Load()
	for _, e := range x.config.Exits {
		one := check.Exit{Exit: e}
		for _, r := range refusals {
			if r.Exit == e.Name {
				one.Refused = append(one.Refused, r)
			}
		}
		in.Exits = append(in.Exits, one)
	}
	x.samples(in.Exits)
	return in
}

// EgressCheck finds out whether packets leave by each exit of the plait that is up on this host. Some of it takes seconds: doing hears what.
func (c *ControlClient) EgressCheck(ctx context.Context, doing func(string)) ([]CheckResult, error) {
	return check.Run(ctx, func() (in check.Input, err error) {
		return in, c.call(http.MethodGet, "/egress/check", &in)
	}, doing)
}

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress/mptcp"
)

// compareEvery is how often destinations are looked at for one where plait does harm.
const compareEvery = 10 * time.Second

// maxReverted is how many destinations have room in plait_reverted (bpf/rules.h), whatever the rules: each may be there once for every
// policy of the kernel half's table.
const maxReverted = 65536 / (maxRules + 1)

// prefixOf is the destination a key of the kernel half stands for.
func prefixOf(k bpf.Prefix) netip.Prefix {
	a := netip.AddrFrom16(k.Address)
	if a.Is4In6() {
		return netip.PrefixFrom(a.Unmap(), 24)
	}
	return netip.PrefixFrom(a, 48)
}

func group(g *bpf.Group) Group {
	return NewGroup(Histogram{g.Connections, g.Squares, g.LogsSquared, g.Products, slices.Clone(g.Buckets[:])}, g.Bytes)
}

// compare puts the two groups of every destination and policy side by side.
func (d *Daemon) compare() ([]PrefixStatus, error) {
	out := []PrefixStatus{} // none is [] in JSON, and null without this
	err := d.kernel.latencies(func(key *bpf.Prefix, l *bpf.Latency) {
		if int(key.Policy) >= len(d.policies) {
			return // of rules that were in force a moment ago
		}
		p, policy := PrefixStatus{Prefix: prefixOf(*key), Managed: group(&l.Managed), Holdout: group(&l.Holdout)}, d.policies[key.Policy]
		p.Difference = Compare(p.Managed.latency, p.Holdout.latency)
		p.Policy, p.Rule, p.destination = policy.lever.Policy, policy.rule, destination{p.Prefix, policy.name}
		if _, reverted := d.reverted[p.destination]; !reverted {
			out = append(out, p)
		}
	})
	if err != nil {
		return out, err
	}
	for back, p := range d.reverted {
		if !slices.ContainsFunc(d.policies, func(now policy) bool { return now.name == back.policy }) {
			continue // its policy may come back; until then others have the destination
		}
		p.RevertedAt = byClock(p.RevertedAt, time.Now())
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b PrefixStatus) int {
		return cmp.Or(cmp.Compare(b.Managed.Bursts+b.Holdout.Bursts, a.Managed.Bursts+a.Holdout.Bursts), a.Prefix.Addr().Compare(b.Prefix.Addr()),
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule))
	})
	return out, nil
}

// revert gives destinations where plait is worse with confidence back to the system's default, until plait goes down or
// that default is another. Other policies keep theirs.
func (d *Daemon) revert() error {
	prefixes, err := d.compare()
	if err != nil {
		return err
	}
	before := 0
	for _, p := range prefixes {
		if p.Reverted {
			before++
		}
	}
	now := before
	for _, p := range prefixes {
		if p.Difference.Verdict != Worse || p.Reverted || now >= maxReverted { // more than that: by a policy that has come back
			continue
		}
		now++
		p.Reverted, p.RevertedAt = true, time.Now()
		d.reverted[p.destination] = p
		fmt.Fprintf(d.options.Log, "revert %s, policy %s: bursts take %.2f times as long as on the system's default (95 %% confidence: %.2f to %.2f)\n",
			p.Prefix, p.Policy, p.Difference.Ratio, p.Difference.Low, p.Difference.High)
	}
	if now == before {
		return nil
	}
	if now == maxReverted {
		fmt.Fprintf(d.options.Log, "%d destinations are given back, and there is room for no more; where plait is slower at so many, it should not be up\n", maxReverted)
	}
	if err := d.kernel.setReverted(d.reverted, d.policies); err != nil {
		return err
	}
	d.kernel.control.Generation++ // connections look for their rules, and leave
	return d.kernel.beat(d.every)
}

// inUse is the congestion control the connection has now.
func (k *socket) inUse(systemDefault string) string {
	if k.last.observed {
		return systemDefault
	}
	return k.last.Algorithm.String()
}

func (k *socket) status(systemDefault string) SocketStatus {
	wanted := k.algorithm
	if k.last.Bulk {
		wanted = k.bulk
	}
	f := flowOf(k.last.flow)
	return SocketStatus{
		Cookie: k.last.Cookie, Local: f.Local, Remote: f.Remote, Policy: k.under.lever.Policy, Rule: k.under.rule,
		Algorithm: k.inUse(systemDefault), Wanted: wanted.String(), Because: k.because.String(), Scores: k.scores, Total: k.total, Last: k.last.Sample,
		AtLoss: k.atLoss,
	}
}

// unplugged says that the interface of the exits' addresses is not there, which may be a mistake or may come later.
func (x Egress) unplugged() string {
	if x.Interface == "" || x.Mode == Off {
		return ""
	}
	if _, err := net.InterfaceByName(x.Interface); err != nil {
		return fmt.Sprintf("the section egress names interface %s, which cannot be found (%v): plait needs it for the addresses of the exits", x.Interface, err)
	}
	return ""
}

// alone says what keeps MPTCP from giving connections a second exit.
func (x Egress) alone(lacks []mptcp.Lack) string {
	if x.Mode != On || len(lacks) == 0 {
		return ""
	}
	return fmt.Sprintf("connections have BGP's best path alone: %s; %s", lacks[0].What, lacks[0].Do)
}

// blind says what the lever goes without because its flows are not watched.
func (x *exits) blind() string {
	if x == nil || x.unwatched == "" {
		return ""
	}
	return "flows are not watched, so failures of exits are left to BGP, nothing is compared or spared, and strategy latency, caps, moved_percent and rules by cgroup do nothing: " + x.unwatched
}

// outlasting warns of a congestion control that would outlast a daemon that is killed.
func (k *kernel) outlasting() string {
	if k.linked || !k.takes {
		return ""
	}
	return "this kernel (before 6.4) keeps the congestion control registered if the daemon is killed; plait down removes it"
}

// idle says what keeps this host from having connections over several links.
func (a Ackpath) idle(lacks []mptcp.Lack) string {
	if a.Mode == Off || len(lacks) == 0 {
		return ""
	}
	return fmt.Sprintf("no ACKs are copied: %s; %s", lacks[0].What, lacks[0].Do)
}

// untimed warns that nothing is compared, where there is anything to compare.
func (c Config) untimed(tracing error) string {
	if tracing == nil || !c.takes() {
		return ""
	}
	return "bursts of held-out connections cannot be timed, so there is no comparison: " + firstLine(tracing)
}

// Status implements Controlled. Connections are put in order, and the other levers asked, when the heartbeat need not wait for it: to sort 100,000 takes six times as long
// as to list them, and a lever may be busy for seconds.
func (d *Daemon) Status() Status {
	s := d.status(true)
	s.Egress, s.Ackpath = d.exits.summary(), d.acks.summary()
	slices.SortFunc(s.Sockets, func(a, b SocketStatus) int { return cmp.Compare(a.Cookie, b.Cookie) })
	return s
}

// totals are a Status without its connections and the other levers, for the metrics, which count connections only.
func (d *Daemon) totals() Status { return d.status(false) }

func (d *Daemon) status(connections bool) Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.config.Congestion
	s := Status{
		Version: d.options.Version, PID: os.Getpid(), UpSince: byClock(d.upSince, time.Now()),
		Mode: l.Mode, Policy: l.Policy, HoldoutPercent: l.HoldoutPercent, Allow: l.Allow, Rules: len(l.Rules),
		Default: name16(d.kernel.control.Fallback), Cgroup: shownCgroup(d.config.Cgroup), Linked: d.kernel.linked, Tracing: "on", Warnings: []string{},
	}
	if d.kernel.tracing != nil {
		s.Tracing = d.kernel.tracing.Error()
	}
	if why := d.config.untimed(d.kernel.tracing); why != "" {
		s.Warnings = append(s.Warnings, why)
	}
	counters, err := d.kernel.counters()
	if err != nil {
		s.Warnings = append(s.Warnings, err.Error())
	}
	s.Counters = map[string]uint64{
		"attached": counters.Attached, "held_out": counters.HeldOut, "refused": counters.Refused, "switches": counters.Switches,
		"samples_dropped": counters.SamplesDropped, "choices_dropped": d.dropped, "stood_still": d.stood, "fell_back": counters.FellBack, "bursts_unmeasured": counters.BurstsUnmeasured, "resumed": counters.Resumed,
	}
	if s.bursts, err = d.kernel.bursts(); err != nil {
		s.Warnings = append(s.Warnings, err.Error())
	}
	if s.Prefixes, err = d.compare(); err != nil {
		s.Warnings = append(s.Warnings, err.Error())
	}
	if _, err := fallback(); err != nil {
		s.Warnings = append(s.Warnings, err.Error())
	}
	lacks := mptcp.SwitchedOff()
	for _, why := range []string{d.kernel.replaced(d.config.Cgroup), d.kernel.outlasting(), cmp.Or(d.exits.behind(), d.config.Egress.unplugged()), d.config.Egress.alone(lacks), d.exits.blind(), d.config.Ackpath.idle(lacks)} {
		if why != "" {
			s.Warnings = append(s.Warnings, why)
		}
	}
	s.algorithms = map[string]int{}
	for _, k := range d.sockets {
		s.algorithms[k.inUse(s.Default)]++
	}
	if connections {
		s.Sockets = make([]SocketStatus, 0, len(d.sockets))
		for _, k := range d.sockets {
			s.Sockets = append(s.Sockets, k.status(s.Default))
		}
	}
	return s
}

func name16(b [16]uint8) string {
	n := slices.Index(b[:], 0)
	return string(b[:max(n, 0)])
}

// errDown is why a daemon ends that is asked to.
var errDown = errors.New("plait down")

// Stop implements Controlled.
func (d *Daemon) Stop() { d.stop(errDown) }

// toDefault is the choice of the system's default, PLAIT_DEFAULT in bpf/abi.h.
const toDefault = math.MaxUint8

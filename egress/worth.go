package egress

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"plait.dev/plait/signals"
)

const (
	// sampleFor is how long a connection's transfers are put together to one sample: they share client and line, and say little more than one of them.
	sampleFor = 10 * time.Second
	// sameWithin is how much slower several exits may be and still count as equal.
	sameWithin = 1.02
	// worthIt is how much of the time several exits have to save, or they are only a burden on links that others use.
	worthIt = 0.95
	// firstRest is how long a prefix stays with one exit when it is found to be better off, then twice as long each time that is found again.
	firstRest = time.Hour
	mostRest  = 24 * time.Hour
	// trialFor is how old a comparison whose answer is known is when it begins anew: what was measured long ago would outweigh what has changed since.
	trialFor = 24 * time.Hour
	// mostKnown is how many prefixes are remembered; those nothing was sent to for longest are forgotten, those without a verdict first.
	mostKnown = 10_000
	// clock is the standard deviation of a transfer's time that equal ones do not show, as a share: it is known to a per cent or so.
	clock = 0.01
)

// MbitPerSecond is the geometric mean of a group's rates; 0 without samples.
func MbitPerSecond(g signals.Group) float64 {
	if g.Samples == 0 {
		return 0
	}
	return 8 / math.Exp(g.Mean())
}

// Known is what is known of the clients in a prefix: whether a service's strategy serves them better than BGP's best path alone.
type Known struct {
	Prefix   netip.Prefix `json:"prefix"`
	Strategy Strategy     `json:"strategy"`
	// Managed connections are under the strategy, HeldOut ones have the best path alone. A sample is the logarithm of the time a byte took, in us.
	Managed signals.Group `json:"managed"`
	HeldOut signals.Group `json:"held_out"`
	// Since is when that began.
	Since time.Time `json:"since,omitzero"`
	// OneUntil is when the strategy is tried again; the zero time: it is in force.
	OneUntil time.Time `json:"one_until,omitzero"`
	// Rest is how long that is or was.
	Rest time.Duration `json:"rest_ns,omitempty"`
	// Last is when something was measured.
	Last time.Time `json:"last"`

	trial uint32 // this comparison, among all
}

// Ratio of the times a byte takes, managed over held out, with its 95 % interval; zeros as long as there is too little to say.
func (k *Known) Ratio() (ratio, low, high float64) {
	low, high, ok := signals.Interval(k.Managed, k.HeldOut, clock*clock)
	if !ok {
		return 0, 0, 0
	}
	return math.Exp(k.Managed.Mean() - k.HeldOut.Mean()), math.Exp(low), math.Exp(high)
}

// Verdict in words if the clients are better off with one exit; else empty.
func (k *Known) verdict() string {
	_, low, _ := k.Ratio()
	switch {
	case low > sameWithin:
		return "slower"
	case low > worthIt && k.Strategy == Throughput:
		return "no faster"
	}
	return ""
}

// worthwhile says whether the strategy is known to be worth it.
func (k *Known) worthwhile() bool {
	_, _, high := k.Ratio()
	return high > 0 && (high < worthIt || high < sameWithin && k.Strategy != Throughput)
}

type knownKey struct {
	prefix   netip.Prefix
	strategy Strategy
}

// sampled are a connection's transfers of some seconds.
type sampled struct {
	of        knownKey
	heldOut   bool
	trial     uint32 // it is of
	since     time.Time
	bytes, us float64
}

// Worth finds out for which client prefixes strategies are worth it. It is for one goroutine at a time.
type Worth struct {
	known   map[knownKey]*Known
	open    map[uint32]*sampled // by connection
	members members
	trials  uint32 // comparisons that have begun
}

// earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// NewWorth returns what a process before this one found out. Its clock may have been ahead: nothing that it wrote lasts longer than it could have from now on.
func NewWorth(before []Known, now time.Time) *Worth {
	w := &Worth{known: map[knownKey]*Known{}, open: map[uint32]*sampled{}, members: members{young: map[uint32]member{}}}
	for _, k := range before {
		k.Rest = min(max(k.Rest, 0), mostRest)
		if k.Managed.SamplesSquared < k.Managed.Samples || k.HeldOut.SamplesSquared < k.HeldOut.Samples { // written by a plait that did not count them
			k.Managed, k.HeldOut = signals.Group{}, signals.Group{}
		}
		k.Since, k.Last, k.OneUntil = earlier(k.Since, now), earlier(k.Last, now), earlier(k.OneUntil, now.Add(k.Rest))
		w.trials++
		k.trial = w.trials
		w.known[knownKey{k.Prefix, k.Strategy}] = &k
	}
	return w
}

// begin compares a prefix's connections, anew, from a time on.
func (w *Worth) begin(k *Known, at time.Time) {
	k.OneUntil, k.Since, k.Managed, k.HeldOut = time.Time{}, at, signals.Group{}, signals.Group{}
	w.trials++
	k.trial = w.trials
}

// Anew forgets what is known of a strategy, which means others of the exits from now on.
func (w *Worth) Anew(s Strategy) {
	maps.DeleteFunc(w.known, func(k knownKey, _ *Known) bool { return k.strategy == s })
}

// Restart compares anew, from a time on, where a strategy's groups get other shares of the connections: the samples of each would be of other hours than those it is compared with. A verdict stays, for it was found before.
func (w *Worth) Restart(s Strategy, at time.Time) {
	for key, k := range w.known {
		if key.strategy == s && k.OneUntil.IsZero() {
			w.begin(k, at.Add(sampleFor))
		}
	}
}

// Known lists all, in no order: see ByPrefix.
func (w *Worth) Known() []Known {
	out := make([]Known, 0, len(w.known))
	for _, k := range w.known {
		out = append(out, *k)
	}
	return out
}

// ByPrefix compares for the order of the prefixes, and of the strategies where they are the same.
func ByPrefix(a, b Known) int {
	if c := a.Prefix.Compare(b.Prefix); c != 0 {
		return c
	}
	return slices.Index(Strategies(), a.Strategy) - slices.Index(Strategies(), b.Strategy)
}

// One says whether the prefix is better off with one exit, as far as is known.
func (w *Worth) One(prefix netip.Prefix, s Strategy) bool {
	k := w.known[knownKey{prefix, s}]
	return k != nil && !k.OneUntil.IsZero()
}

// Join has a connection compared from now on, with the managed or the held-out ones.
func (w *Worth) Join(connection uint32, heldOut bool) { w.members.join(connection, heldOut) }

// Leave has it compared no more. What was measured of it stays.
func (w *Worth) Leave(connection uint32) { w.members.leave(connection) }

// Compares says whether a connection is compared.
func (w *Worth) Compares(connection uint32) bool {
	_, is := w.members.known(connection)
	return is
}

// Transfer takes in how long a connection that is compared took for some bytes.
func (w *Worth) Transfer(connection uint32, prefix netip.Prefix, s Strategy, bytes, us uint32, now time.Time) {
	m, is := w.members.known(connection)
	if !is {
		return
	}
	w.members.join(connection, m.heldOut) // in the younger generation
	key := knownKey{prefix, s}
	k := w.known[key]
	if k == nil {
		k = &Known{Prefix: prefix, Strategy: s, Last: now}
		w.begin(k, now)
		w.known[key] = k
	}
	if now.Before(k.Since) {
		return
	}
	o := w.open[connection]
	if o == nil || o.of != key || o.heldOut != m.heldOut || o.trial != k.trial {
		o = &sampled{of: key, heldOut: m.heldOut, trial: k.trial, since: now}
		w.open[connection] = o
	}
	o.bytes += float64(bytes)
	o.us += float64(us)
}

// fold takes in a connection's sample of a prefix. While that stays with one exit there is nothing to compare.
func (w *Worth) fold(connection uint32, o *sampled, k *Known, now time.Time) {
	k.Last = now
	if !k.OneUntil.IsZero() || o.trial != k.trial || o.bytes == 0 || o.us == 0 {
		return
	}
	g := &k.Managed
	if o.heldOut {
		g = &k.HeldOut
	}
	m, _ := w.members.known(connection)
	if m.heldOut != o.heldOut || m.samples == math.MaxUint16 && m.trial == o.trial {
		return
	}
	if m.trial != o.trial {
		m.trial, m.samples, m.sum = o.trial, 0, 0
	}
	sum := m.sum + float32(math.Log(o.us/o.bytes)) // what it is rounded to: the sums of squares are of that
	g.Add(float64(sum)-float64(m.sum), float64(m.samples), float64(m.sum))
	m.samples, m.sum = m.samples+1, sum
	w.members.young[connection] = m
}

// forget makes room where too many prefixes are known.
func (w *Worth) forget() {
	if len(w.known) <= mostKnown {
		return
	}
	all := slices.Collect(maps.Keys(w.known))
	slices.SortFunc(all, func(a, b knownKey) int { // those that go first come first
		x, y := w.known[a], w.known[b]
		if x.OneUntil.IsZero() != y.OneUntil.IsZero() {
			return map[bool]int{true: -1, false: 1}[x.OneUntil.IsZero()]
		}
		return x.Last.Compare(y.Last)
	})
	for _, k := range all[:len(all)-mostKnown*9/10] {
		delete(w.known, k)
	}
}

// Decision is a change of what a prefix is given.
type Decision struct {
	Known
	// Why in words: "slower" or "no faster" than the best path alone; empty if the strategy is tried again.
	Why string
}

// Tick judges what has come together, and returns what changes.
func (w *Worth) Tick(now time.Time) (changes []Decision) {
	touched := map[*Known]bool{}
	for connection, o := range w.open {
		if now.Sub(o.since) >= sampleFor {
			if k := w.known[o.of]; k != nil { // it may have been forgotten
				w.fold(connection, o, k, now)
				touched[k] = true
			}
			delete(w.open, connection)
		}
	}
	for k := range touched {
		if why := k.verdict(); why != "" && k.OneUntil.IsZero() {
			k.Rest = min(max(2*k.Rest, firstRest), mostRest)
			k.OneUntil = now.Add(k.Rest)
			changes = append(changes, Decision{*k, why})
		} else if k.OneUntil.IsZero() && now.Sub(k.Since) >= trialFor && k.worthwhile() {
			w.begin(k, now)
		}
	}
	for _, k := range w.known {
		if !k.OneUntil.IsZero() && !now.Before(k.OneUntil) {
			w.begin(k, now.Add(sampleFor)) // until then connections that were with one exit turn to several
			changes = append(changes, Decision{*k, ""})
		}
	}
	w.forget()
	w.members.forget(now)
	return changes
}

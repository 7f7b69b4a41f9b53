package egress

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// sender is a flow that sends a byte now and then to a network. What it sends passes the exit at once, is answered a round trip later, and is lost from a time on.
type sender struct {
	network         netip.Prefix
	rtt, first, gap time.Duration
	dies            time.Duration // what is sent from then on is lost
	keepalive       time.Duration // its client sends an ACK so often; 0: never
}

// at is what the kernel knows of it.
func (s sender) at(now time.Duration) Progress {
	p := Progress{RTT: s.rtt}
	if before := min(s.dies, now-s.rtt+1); before > s.first { // what was sent earlier is answered
		sent := (before - s.first - 1) / s.gap
		p.AckedBytes, p.Heard = uint64(sent+1), epoch.Add(s.first+sent*s.gap+s.rtt)
	}
	if s.keepalive > 0 {
		if heard := epoch.Add(now.Truncate(s.keepalive)); heard.After(p.Heard) {
			p.Heard = heard
		}
	}
	return p
}

// stalls is when the first byte that was lost is overdue; after never: there is none.
func (s sender) stalls() time.Duration {
	sent := s.first
	if s.dies > s.first {
		sent += ((s.dies-s.first-1)/s.gap + 1) * s.gap
	}
	return sent + 3*s.rtt + 250*time.Millisecond
}

var epoch = time.Unix(1000, 0)

// found lets the flows of an exit tell what they find out, and says when that has taken it out; 0: never.
func found(senders []sender) time.Duration {
	o := NewOutages()
	byStall := slices.Clone(senders)
	slices.SortFunc(byStall, func(a, b sender) int { return int(a.stalls() - b.stalls()) })
	for _, s := range byStall {
		now := s.stalls()
		if now >= never || !o.Witness("a", s.network, epoch.Add(now)) {
			continue
		}
		inquiry := NewInquiry[int](epoch.Add(now))
		for over := false; !over; now += 100 * time.Millisecond {
			var out bool
			over, out = inquiry.Look(func(yield func(int, Progress) bool) {
				for i, s := range senders {
					if !yield(i, s.at(now)) {
						return
					}
				}
			}, epoch.Add(now))
			if out {
				return now
			}
		}
	}
	return 0
}

const never = time.Hour

func random(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// An exit that dies for all its networks is found, whatever its clients' round trips, and while they keep idle connections alive. One of which a network behind it dies is not, as long as any other flow gets on.
func TestInquiry(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		dies := 5 * time.Second
		var dead, living []sender
		for n := range suspects + r.IntN(20) {
			s := sender{network: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, byte(n), 0}), 24), rtt: random(r, time.Millisecond, 700*time.Millisecond),
				first: random(r, 0, time.Second), gap: random(r, time.Millisecond, 150*time.Millisecond), dies: dies}
			dead = append(dead, s)
			s.gap, s.first, s.keepalive = never, random(r, 0, dies), random(r, 100*time.Millisecond, time.Second)
			dead = append(dead, s)
		}
		at := found(dead)
		slices.SortFunc(dead, func(a, b sender) int { return int(a.stalls() - b.stalls()) })
		if last := dead[suspects-1].stalls() + 700*time.Millisecond + 2*late + 100*time.Millisecond; at < dies || at > last { // at the first inquiry
			t.Fatalf("seed %d: the exit died at %v and was found so at %v, want until %v", seed, dies, at, last)
		}
		for range 1 + r.IntN(5) {
			living = append(living, sender{network: netip.MustParsePrefix("203.0.113.0/24"), rtt: random(r, time.Millisecond, 700*time.Millisecond), gap: random(r, time.Millisecond, 100*time.Millisecond), dies: never})
		}
		if at := found(append(dead, living...)); at != 0 {
			t.Fatalf("seed %d: with %+v alive, the exit is taken for dead at %v", seed, living, at)
		}
	}
}

// A client that connects anew from a port it had before begins at nothing: what it acknowledges is progress, though the connection before had brought more.
func TestInquiryPortReused(t *testing.T) {
	for _, acked := range []uint64{0, 1000} {
		inquiry, now, over, out := NewInquiry[int](epoch), epoch, false, false
		for ; !over; now = now.Add(100 * time.Millisecond) {
			bytes := uint64(1e6)
			if now.Sub(epoch) >= 300*time.Millisecond {
				bytes = acked
			}
			over, out = inquiry.Look(maps.All(map[int]Progress{1: {AckedBytes: bytes, RTT: 20 * time.Millisecond}}), now)
		}
		if out != (acked == 0) {
			t.Errorf("%d bytes acknowledged on the new connection: the exit is out: %v", acked, out)
		}
	}
}

// Witnesses are of different networks, and of some seconds.
func TestWitness(t *testing.T) {
	network := func(n byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, n, 0}), 24) }
	for _, c := range []struct {
		what     string
		exit     string
		networks []byte
		every    time.Duration
		want     bool
	}{
		{"three networks", "a", []byte{1, 2, 3}, time.Second, true},
		{"two", "a", []byte{1, 2, 1, 2}, time.Second, false},
		{"three, too slowly", "a", []byte{1, 2, 3, 4, 5}, 2 * time.Second, false},
		{"none of the configuration", "", []byte{1, 2, 3, 4}, time.Second, false},
	} {
		o, got := NewOutages(), false
		for i, n := range c.networks {
			got = o.Witness(c.exit, network(n), epoch.Add(time.Duration(i)*c.every))
		}
		if got != c.want || o.Witness(c.exit, netip.Prefix{}, epoch) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// An exit that is out comes back with a sign of life, not sooner than after its hold-down, which is longer each time; without one after five minutes.
func TestOutageEnds(t *testing.T) {
	o, now := NewOutages(), epoch
	begin := func(want time.Duration) {
		t.Helper()
		for n := range byte(suspects) {
			o.Witness("a", netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, n, 0}), 24), now)
		}
		if got := o.Begin("a", now); got != want || !o.Out("a") || !o.Any() {
			t.Errorf("held for %v, want %v; out %v", got, want, o.Out("a"))
		}
	}
	begin(5 * time.Second)
	if o.Witness("a", netip.MustParsePrefix("192.0.2.0/24"), now) {
		t.Error("it may be out a second time")
	}
	over := func(after time.Duration, want map[string]bool) {
		t.Helper()
		if got := o.Over(now.Add(after)); !maps.Equal(got, want) || o.Out("a") != (len(want) == 0) {
			t.Errorf("after %v over is %v, want %v; out %v", after, got, want, o.Out("a"))
		}
	}
	over(5*time.Second, nil)
	o.Proven("a")
	o.Proven("b")
	over(5*time.Second-1, nil)
	over(5*time.Second, map[string]bool{"a": true})
	if now = now.Add(30 * time.Second); o.Witnesses("a") != 0 {
		t.Errorf("%d witnesses of before", o.Witnesses("a"))
	}
	begin(10 * time.Second)
	over(mostOut-1, nil)
	over(mostOut, map[string]bool{"a": false})
	now = now.Add(mostOut + relapse + 1)
	begin(5 * time.Second)
}

// While exits go out and come back, in the middle of updates, no packet leaves by one that does not announce its destination, nobody is without a way who had one and gets one, and in the end nobody's leaves by one
// that is out while another announces the same.
func TestOutAgainstUpdates(t *testing.T) {
	for seed := range uint64(rung.Times(3, 20)) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := newPlan(t, three)
		o, kernel := newOracle(three), map[place]Entry{}
		do := func(changes []Change) {
			t.Helper()
			before, after := maps.Clone(kernel), maps.Clone(kernel)
			for _, c := range changes {
				if err := put(after, c); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range changes {
				if err := put(kernel, c); err != nil {
					t.Fatal(err)
				}
				checkMoment(t, kernel, before, after)
			}
			for _, to := range clients {
				checkLeaves(t, o, kernel, to)
			}
		}
		for range 300 {
			var updates []Update
			for range 1 + r.IntN(6) {
				updates = append(updates, randomUpdate(r))
			}
			o.apply(updates)
			do(p.Apply(updates))
			if r.IntN(3) > 0 {
				continue
			}
			p.SetOut(one(r, "a", "b", "c"), r.IntN(2) == 0)
			misplaced := p.Misplaced()
			slices.SortFunc(misplaced, comparePrefixes)
			for some := range slices.Chunk(misplaced, 2) {
				if r.IntN(4) == 0 { // a reflector tells of something meanwhile
					u := []Update{randomUpdate(r)}
					o.apply(u)
					do(p.Apply(u))
				}
				do(p.Renew(some))
			}
			do(checkOut(t, p))
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// checkOut looks at where packets leave, and that there is nothing left to renew that would change it; of other changes it returns those.
func checkOut(t *testing.T, p *Plan) (changes []Change) {
	t.Helper()
	ways := func() string {
		var out []string
		for _, prefix := range p.prefixes() {
			if d := p.destinations[prefix]; d.best != nil || d.standby != nil {
				_, exit := p.Main(prefix.Addr())
				out = append(out, fmt.Sprint(prefix, " ", d.best != nil, " ", exit))
			}
		}
		return fmt.Sprint(out)
	}
	before := ways()
	for _, prefix := range p.prefixes() {
		d, free := p.destinations[prefix], false
		for i, a := range d.exits {
			free = free || a != nil && p.out>>i&1 == 0 && !sameWay(a, d.best) && !p.leadsBack(prefix, a.sid) // of the same border router it would be the same way
		}
		if through := d.leaves(); free && (d.best != nil && through != elsewhere && p.out>>through&1 == 1 || d.best == nil && d.standby != nil && p.out>>d.standbyExit&1 == 1) {
			t.Errorf("%v leaves by an exit that is out: %+v", prefix, d)
		}
	}
	changes = p.Renew(p.prefixes())
	if after := ways(); after != before {
		t.Errorf("not all were renewed: %s, then %s", before, after)
	}
	return changes
}

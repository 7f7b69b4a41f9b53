package egress

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// seconds of a client whose exit a sends so many segments a second and loses a share of them at random; b brings ten times as much. It returns when a was first spared.
func lossy(r *rand.Rand, b Brownouts, from time.Time, seconds int, perSecond, loss float64) (spared, over []int) {
	client := netip.MustParseAddr("192.0.2.1")
	for s := range seconds {
		resent := 0.0
		for range int(perSecond) {
			if r.Float64() < loss {
				resent++
			}
		}
		loads := []WayLoad{{"a", client, perSecond, perSecond, resent}, {"b", client, 10 * perSecond, 10 * perSecond, 0}}
		if b.Spared("a", client) {
			loads = loads[1:]
		}
		on, off := b.Look(loads, from.Add(time.Duration(s)*time.Second))
		if len(on) > 0 {
			spared = append(spared, s)
		}
		if len(off) > 0 {
			over = append(over, s)
		}
	}
	return spared, over
}

// 1 % of loss is bearable for hours; 4 % is not for long, and each spell is twice as long as the one before, until it is over for good.
func TestBrownout(t *testing.T) {
	r, b, at := rand.New(rand.NewPCG(5, 6)), Brownouts{}, time.Unix(1e9, 0)
	if spared, _ := lossy(r, b, at, 7200, 250, 0.01); len(spared) > 0 {
		t.Errorf("spared for 1 %% of loss after %d s", spared[0])
	}
	at = at.Add(7200 * time.Second)
	spared, over := lossy(r, b, at, 120, 250, 0.04)
	if len(spared) < 3 || spared[0] > 5 || over[0]-spared[0] != 10 || over[1]-spared[1] != 20 || over[2]-spared[2] != 40 {
		t.Errorf("4 %% of loss: spared at %v s, until %v s", spared, over)
	}
	at = at.Add(120 * time.Second)
	lossy(r, b, at, 600, 250, 0)
	if len(b) != 0 {
		t.Errorf("long after it is over: %v", b)
	}
}

// What overran a queue once, carries much of the client's traffic, or is all there is, is not spared.
func TestNoBrownout(t *testing.T) {
	client, at := netip.MustParseAddr("192.0.2.1"), time.Unix(1e9, 0)
	for what, loads := range map[string][][]WayLoad{
		"a slow start":             {{{"a", client, 100, 400, 200}, {"b", client, 1000, 1000, 0}}, {{"a", client, 100, 400, 4}, {"b", client, 1000, 1000, 0}}},
		"a great share":            {{{"a", client, 300, 300, 30}, {"b", client, 1000, 1000, 0}}, {{"a", client, 300, 300, 30}, {"b", client, 1000, 1000, 0}}, {{"a", client, 300, 300, 30}, {"b", client, 1000, 1000, 0}}},
		"a bottleneck behind both": {{{"a", client, 100, 300, 30}, {"b", client, 1000, 3000, 300}}, {{"a", client, 100, 300, 30}, {"b", client, 1000, 3000, 300}}, {{"a", client, 100, 300, 30}, {"b", client, 1000, 3000, 300}}},
		"all there is":             {{{"a", client, 300, 300, 30}}, {{"a", client, 300, 300, 30}}, {{"a", client, 300, 300, 30}}},
	} {
		b := Brownouts{}
		for i, l := range loads {
			if spared, _ := b.Look(l, at.Add(time.Duration(i)*time.Second)); len(spared) > 0 {
				t.Errorf("%s: spared at %d s", what, i)
			}
		}
	}
}

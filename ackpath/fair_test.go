package ackpath_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

var cuts [2]int

type cell struct {
	rttMs, queue int
	cubic        bool
	quickMs      float64
	steer, control, ss, ca bool
	factor float64
	lateStart float64
	pulse, dither, strict bool
	pace, share float64
	gamma float64
}

// run: flow 0 plain, flow 1 maybe steered. returns packets/s and jain
func run(c cell, seeds int, from, until float64) (a, b, jain float64, boosted float64) {
	cuts = [2]int{}
	for seed := range seeds {
		s := &sim{random: rand.New(rand.NewPCG(1, uint64(seed))), service: packetBits / 4e6, limit: c.queue}
		fl := [2]*flow{}
		for i := range fl {
			fl[i] = &flow{sim: s, cubic: c.cubic, rtt: float64(c.rttMs) / 1000, todo: 1 << 30}
		}
		if c.steer {
			fl[1].lead = fl[1].rtt/2 - c.quickMs/1000
			fl[1].control, fl[1].honestSS, fl[1].honestCA, fl[1].factor = c.control, c.ss, c.ca, c.factor
		}
		fl[1].pulse = c.pulse && c.steer
		fl[1].gamma = c.gamma
		fl[1].pace = c.pace
		fl[1].strict = c.strict
		fl[1].share = c.share
		fl[1].dither = c.dither
		fl[0].start(s.random.Float64() + c.lateStart)
		fl[1].start(s.random.Float64())
		s.run(until)
		cuts[0] += fl[0].cuts
		cuts[1] += fl[1].cuts
		j := 0.0
		for i := int(from); i < int(until); i++ {
			var x, y float64
			if i < len(fl[0].perSecond) {
				x = float64(fl[0].perSecond[i])
			}
			if i < len(fl[1].perSecond) {
				y = float64(fl[1].perSecond[i])
			}
			a += x
			b += y
			if x+y > 0 {
				j += (x + y) * (x + y) / 2 / (x*x + y*y)
			} else {
				j++
			}
		}
		jain += j / (until - from)
		boosted += float64(fl[1].boosted) / float64(max(fl[1].total,1))
	}
	n := (until - from) * float64(seeds) / packetBits * 1e6
	return a / n, b / n, jain / float64(seeds), boosted / float64(seeds)
}

func TestExplore(t *testing.T) {
	if os.Getenv("EXPLORE") == "" {
		t.Skip()
	}
	var late float64
	fmt.Sscan(os.Getenv("LATE"), &late)
	seeds := 6
	fmt.Sscan(os.Getenv("SEEDS"), &seeds)
	for _, cubic := range []bool{os.Getenv("CUBIC")!=""} {
		for _, rtt := range []int{350, 250} {
			for _, q := range []int{5, 30, 150} {
				base := cell{rttMs: rtt, queue: q, cubic: cubic, quickMs: 5, lateStart: late, factor: 100}
				from, until := 5.0, 120.0
				if late > 0 {
					from, until = late, late+120
				}
				a0, b0, j0, _ := run(base, seeds, from, until)
				a0 = (a0+b0)/2
				line := fmt.Sprintf("cubic=%-5v rtt=%d q=%-4d none %.2f/%.2f J%.3f %v", cubic, rtt, q, a0, b0, j0, cuts)
				for _, v := range variants {
					c := base
					c.steer = true
					v.set(&c)
					a, b, j, bo := run(c, seeds, from, until)
					line += fmt.Sprintf(" | %s %.2f/%.2f %.2f %+.3f %.2f %v", v.name, a, b, a/a0, j-j0, bo, cuts)
				}
				fmt.Println(line)
			}
		}
	}
	_ = math.Pi
}

var variants = []struct {
	name string
	set  func(*cell)
}{
	{"fair", func(c *cell) { c.control, c.pace = true, 1.05 }},
	{"fair1.2", func(c *cell) { c.control, c.pace = true, 1.2 }},
	{"ss", func(c *cell) { c.control, c.pace, c.ss, c.factor, c.strict = true, 1.05, true, 100, true }},
	{"ss+ca3/4", func(c *cell) { c.control, c.pace, c.ss, c.ca, c.factor, c.share, c.strict = true, 1.05, true, true, 2, 0.75, true }},
}

func alone(c cell, todo int, drop bool) (done, recover float64, util float64) {
	s := &sim{random: rand.New(rand.NewPCG(1, 3)), service: packetBits / 4e6, limit: c.queue}
	f := &flow{sim: s, cubic: c.cubic, rtt: float64(c.rttMs) / 1000, todo: todo}
	if c.steer {
		f.lead = f.rtt/2 - c.quickMs/1000
		f.control, f.honestSS, f.honestCA, f.factor, f.pace, f.share = c.control, c.ss, c.ca, c.factor, c.pace, c.share
	}
	f.strict = c.strict
	f.start(0)
	if !drop {
		s.run(200)
		return f.doneAt, 0, 0
	}
	s.run(60)
	f.drops = map[int]bool{}
	for i := range 5 {
		f.drops[len(f.pkts)+i] = true
	}
	at := s.now
	d := f.delivered
	for {
		s.run(s.now + 0.5)
		if x := float64(f.delivered-d) / 0.5 * s.service; (x > 0.95 && s.now > at+1) || s.now > 190 {
			break
		}
		d = f.delivered
	}
	recover = s.now - at
	s.run(200)
	return 0, recover, float64(f.delivered) * s.service / 200
}

func TestAlone(t *testing.T) {
	if os.Getenv("EXPLORE") == "" {
		t.Skip()
	}
	for _, cubic := range []bool{false, true} {
		for _, rtt := range []int{100, 250} {
			for _, q := range []int{30, 150} {
				fmt.Printf("cubic=%v rtt=%d q=%d", cubic, rtt, q)
				for i := -2; i < len(variants); i++ {
					c := cell{rttMs: rtt, queue: q, cubic: cubic, quickMs: 5}
					name := "none"
					if i >= -1 {
						c.steer = true
						name = "free"
					}
					if i >= 0 {
						variants[i].set(&c)
						name = variants[i].name
					}
					a, _, _ := alone(c, 67, false)
					b, _, _ := alone(c, 667, false)
					d, _, _ := alone(c, 6667, false)
					_, r, u := alone(c, 1<<30, true)
					fmt.Printf(" | %s %.2f %.2f %.2f rec %.1f util %.3f", name, a, b, d, r, u)
				}
				fmt.Println()
			}
		}
	}
}

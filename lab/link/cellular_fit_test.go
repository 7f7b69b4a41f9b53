package link

import (
	"math"
	"slices"
	"sort"
)

// fitCellular finds the parameters of the cellular process that follow a recording: outages are cut out, the rate that
// remains gives the distribution, and its autocorrelation the memory of the latent process. Fewer than 3 outages are none.
func fitCellular(name string, recording series) cellularProfile {
	on, cuts, outages := cutOutages(recording)
	packets := make([]float64, len(on)/cellularSlotMs)
	for i := range packets {
		for _, n := range on[i*cellularSlotMs : (i+1)*cellularSlotMs] {
			packets[i] += float64(n)
		}
	}
	p := cellularProfile{name: name, rateMbps: fitRate(packets), clump: fitClump(on)}
	p.memory = fitMemory(&p, packets)
	if len(outages) >= 3 {
		p.outagesPerMin = float64(len(outages)) / (float64(len(on)) / 60e3)
		p.outageTilt = fitTilt(packets, cuts)
		p.outages = fitOutages(outages)
	}
	return p.rounded()
}

// cutOutages shortens each outage to a millisecond. It returns what remains, where the cuts are, and how long the outages were.
func cutOutages(s series) (on series, cuts []int, outagesMs []float64) {
	last := 0
	for ms, packets := range s {
		if packets == 0 {
			continue
		}
		if gap := ms - last; gap >= cellularOutageMin {
			outagesMs = append(outagesMs, float64(gap))
			cuts = append(cuts, len(on))
		} else {
			on = append(on, s[last+1:max(ms, last+1)]...)
		}
		on = append(on, packets)
		last = ms
	}
	return on, cuts, outagesMs
}

// normal is the distribution function of the standard normal distribution.
func normal(z float64) float64 { return (1 + math.Erf(z/math.Sqrt2)) / 2 }

// fitRate takes each knot from the packets per slot half a knot around it, then scales all to keep the mean.
func fitRate(packets []float64) (rateMbps [cellularKnots]float64) {
	sorted := slices.Sorted(slices.Values(packets))
	rank := func(z float64) int { return int(math.Round(normal(z) * float64(len(sorted)))) }
	for k := range rateMbps {
		z := -cellularLatentMax + float64(k)*cellularLatentStep
		from := rank(z - cellularLatentStep/2)
		from = min(from, len(sorted)-1)
		to := max(rank(z+cellularLatentStep/2), from+1)
		rateMbps[k] = max(mean(sorted[from:to]), 1) * slotMbps
	}
	scale := mean(packets) * slotMbps / expect(func(z float64) float64 { return (&cellularProfile{rateMbps: rateMbps}).rate(z) })
	for k := range rateMbps {
		rateMbps[k] = max(rateMbps[k]*scale, slotMbps)
	}
	return rateMbps
}

// expect is the mean of a function of a standard normal variable, by the trapezoidal rule.
func expect(f func(z float64) float64) float64 {
	const step = 1. / 128
	sum := 0.0
	for z := -6.0; z <= 6; z += step {
		sum += f(z) * math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) * step
	}
	return sum
}

// fitClump solves for the milliseconds used: n packets of which each but the first stays with the one before with
// probability c, else goes to one of m milliseconds at random, use m (1 - (1-1/m) (c + (1-c) (1-1/m))^(n-1)) of them on average.
func fitClump(on series) float64 {
	const m = cellularSlotMs
	used := 0.0
	var packets []float64
	for i := 0; i+m <= len(on); i += m {
		n := 0.0
		for _, p := range on[i : i+m] {
			n += float64(p)
			used += float64(min(p, 1))
		}
		packets = append(packets, n)
	}
	return bisect(0, 1, func(c float64) bool {
		sum := 0.0
		for _, n := range packets {
			if n > 0 {
				sum += m * (1 - (1-1./m)*math.Pow(c+(1-c)*(1-1./m), n-1))
			}
		}
		return sum > used
	})
}

// bisect finds where low ceases to hold.
func bisect(from, to float64, low func(x float64) bool) float64 {
	for range 60 {
		if middle := (from + to) / 2; low(middle) {
			from = middle
		} else {
			to = middle
		}
	}
	return from
}

// fitTilt is how far below its mean the latent process is in the slots before outages, by the ranks of their packets.
func fitTilt(packets []float64, cuts []int) float64 {
	sorted := slices.Sorted(slices.Values(packets))
	var z []float64
	for _, ms := range cuts {
		if slot := ms/cellularSlotMs - 1; slot >= 0 {
			below := sort.SearchFloat64s(sorted, packets[slot])
			upTo := sort.SearchFloat64s(sorted, packets[slot]+0.5)
			q := float64(below+upTo) / 2 / float64(len(sorted))
			z = append(z, math.Sqrt2*math.Erfinv(2*q-1))
		}
	}
	return -mean(z)
}

// fitOutages is the most likely mixture of two exponentials, by expectation maximization. Its mean is that of the outages.
func fitOutages(lengthsMs []float64) (kinds [2]cellularOutage) {
	beyond := mean(lengthsMs) - cellularOutageMin
	kinds = [2]cellularOutage{{0.8, beyond / 2}, {0.2, 3 * beyond}}
	for range 2000 {
		var count, sum [2]float64
		for _, length := range lengthsMs {
			x := length - cellularOutageMin
			var likely [2]float64
			for k, kind := range kinds {
				likely[k] = kind.share / kind.meanMs * math.Exp(-x/kind.meanMs)
			}
			for k := range kinds {
				of := likely[k] / (likely[0] + likely[1])
				count[k] += of
				sum[k] += of * x
			}
		}
		for k := range kinds {
			kinds[k] = cellularOutage{count[k] / float64(len(lengthsMs)), max(sum[k]/count[k], 1)}
		}
	}
	return kinds
}

// rateCorrelation returns the autocorrelation of the rate as a function of that of the latent process, by the Hermite
// expansion of the rate (Mehler's formula).
func (p *cellularProfile) rateCorrelation() func(latent float64) float64 {
	const terms = 12
	var share [terms + 1]float64
	factorial, total := 1.0, 0.0
	for k := 1; k <= terms; k++ {
		factorial *= float64(k)
		c := expect(func(z float64) float64 {
			before, h := 0.0, 1.0 // the Hermite polynomials: h(j+1) = z h(j) - j h(j-1)
			for j := range k {
				before, h = h, z*h-float64(j)*before
			}
			return p.rate(z) * h
		})
		share[k] = c * c / factorial
		total += share[k]
	}
	return func(latent float64) float64 {
		sum := 0.0
		for k := terms; k >= 1; k-- {
			sum = (sum + share[k]/total) * latent
		}
		return sum
	}
}

// correlation is the autocorrelation of the latent process.
func (p *cellularProfile) correlation(lagS float64) float64 {
	sum := 0.0
	for _, m := range p.memory {
		sum += m.share * math.Exp(-lagS/m.seconds)
	}
	return sum
}

// rounded keeps three significant digits, all that a recording of minutes can tell.
func (p cellularProfile) rounded() cellularProfile {
	round := func(x *float64) {
		unit := math.Pow(10, math.Floor(math.Log10(math.Abs(*x)))-2)
		if *x != 0 {
			*x = math.Round(*x/unit) * unit
		}
	}
	for k := range p.rateMbps {
		round(&p.rateMbps[k])
	}
	for _, x := range []*float64{&p.clump, &p.outagesPerMin, &p.outageTilt, &p.outages[0].meanMs, &p.outages[1].meanMs} {
		round(x)
	}
	p.outages[0].share = math.Round(p.outages[0].share*1000) / 1000
	p.outages[1].share = 1 - p.outages[0].share
	return p
}

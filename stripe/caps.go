package stripe

import "slices"

const capReached = "it has reached its cap, which is for one run"

// unspent leaves out ways over links that have reached their caps, this host's or the peer's: a path over one carries nothing, so the links at its ends need others. Such a
// path stays as long as it does not end, and is wanted: what is on its way may still come. It is called with the dialer locked.
func (d *dialer) unspent(all []way, wanted map[pair]way) []way {
	return slices.DeleteFunc(slices.Clone(all), func(w way) bool {
		if t := d.targets[w.pair]; t != nil && (t.works || d.silent(w.pair)) {
			spent := t.path.flight.spent() // whichever of the peer's links it has come to
			if spent {
				wanted[w.pair] = w
			}
			return spent
		}
		far := d.farSpent(w.to)
		if far {
			d.farMissing[d.farNames[w.to]] = capReached
		}
		return far || d.cfg.spent(w.link)
	})
}

// farSpent reports whether a link of the listener's, by its name in pairs, has reached its cap, by all connections together. A host's name may be that of several.
func (d *dialer) farSpent(to string) bool {
	spent := false
	for _, p := range d.told {
		if d.nameOf(p) != to {
			continue
		}
		if p.Policy.CapBytes == 0 || !p.Policy.spent(d.cfg.used.of(use{peer: d.c.peerKey, link: p.Link}).Load()) {
			return false
		}
		spent = true
	}
	return spent
}

package stripe

import "slices"

const capReached = "it has reached its cap, which is for one run"

// unspent leaves out ways over links that have reached their caps, this host's or the peer's: a path over one carries nothing, so the links at its ends need others. Such a
// path stays as long as it does not end, and is wanted: what is on its way may still come. It is called with the dialer locked.
func (d *dialer) unspent(all []way, wanted map[pair]way) []way {
	return slices.DeleteFunc(slices.Clone(all), func(w way) bool {
		far := d.farSpent(w.to)
		if !far && !d.cfg.spent(w.link) {
			return false
		}
		switch {
		case d.works(w.pair) || d.silent(w.pair):
			wanted[w.pair] = w
		case far:
			d.farMissing[d.farNames[w.to]] = capReached
		}
		return true
	})
}

// farSpent reports whether a link of the listener's, by its name in pairs, has reached its cap, by all connections together.
func (d *dialer) farSpent(to string) bool {
	name := d.farNames[to]
	return slices.ContainsFunc(d.told, func(p Peer) bool {
		return p.Link == name && p.Policy.CapBytes > 0 && p.Policy.spent(d.cfg.used.of(use{peer: d.c.peerKey, link: name}).Load())
	})
}

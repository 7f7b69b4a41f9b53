package congestion

import "plait.dev/plait/signals"

// fixed chooses the same algorithm always: the baseline, and the way to force one.
type fixed struct{ choice Choice }

func newFixed(a signals.Algorithm) func() Policy {
	choice := Choice{Algorithm: a, Bulk: a, Because: known("the policy is fixed:" + a.String())}
	return func() Policy { return fixed{choice} }
}

func (f fixed) Choose(signals.Sample) Choice { return f.choice }

// End implements Policy.
func (f fixed) End() {}

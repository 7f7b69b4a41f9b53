package congestion

import (
	"testing"

	"plait.dev/plait/signals"
)

func TestFixed(t *testing.T) {
	for _, a := range signals.Algorithms() {
		newPolicy, err := New("fixed:" + a.String())
		if err != nil {
			t.Fatal(err)
		}
		p := newPolicy()
		for _, s := range []signals.Sample{{}, {AtUs: 1e6, SRTTUs: 1e5, LostBurst: 100, Algorithm: signals.BBR, Bulk: true}} {
			c := p.Choose(s)
			if c.Algorithm != a || c.Because.String() != "the policy is fixed:"+a.String() || c.Scores != nil {
				t.Errorf("fixed:%s chose %+v", a, c)
			}
		}
	}
}

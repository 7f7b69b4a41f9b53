package measure

import (
	"testing"
	"time"

	"plait.dev/plait/stripe"
)

// Why a link was not used one way is not forgotten when it is used the other way.
func TestSaw(t *testing.T) {
	var l Link
	l.saw(stripe.LinkStats{Error: "no answer"})
	l.saw(stripe.LinkStats{Paths: []stripe.PathStats{{RTT: time.Second}, {RTT: time.Millisecond}}})
	if l.Error != "no answer" || l.RTT != time.Second {
		t.Errorf("%+v", l)
	}
}

package stripe

import (
	"testing"

	"plait.dev/plait/internal/rung"
)

// Few hosts have SCTP in their kernel. The lab's guest has: there, the tests that run over each carrier run over it.
func TestSCTPInGuest(t *testing.T) {
	rung.Guest(t, "6.12", "PLAIT_TEST=netns ./tests -test.v -test.timeout 110s -test.skip 'BlocksUDP|DialSlowLink|ListenersPolicy' -test.run "+
		"'^Test(KernelHasSCTP|BothWays|Close.*|Deadline|Dial.*|Host.*|Listen.*|Strangers.*|TooMany.*)$/^sctp$'")
}

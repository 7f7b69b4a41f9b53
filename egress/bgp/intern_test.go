package bgp

import (
	"encoding/binary"
	"testing"
)

// Lists of route targets that a reflector makes up, each as long as may be, are not kept without end.
func TestInternerForgets(t *testing.T) {
	n, list := newInterner(), make([]string, maxList)
	encoded := make([]byte, 8*maxList)
	for i := range internSmall - 1 {
		binary.BigEndian.PutUint32(encoded, uint32(i))
		n.routeTargets(encoded, func() []string { return list })
	}
	kept := 0
	for e := range n.targets {
		kept += len(e)
	}
	if kept > internBytes {
		t.Errorf("%d lists of %d bytes are kept", len(n.targets), kept)
	}
}

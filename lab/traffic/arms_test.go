package traffic

import (
	"encoding/binary"
	"math"
	"net/netip"
	"testing"

	"plait.dev/plait/lab/experiment"
)

// At any moment each address has its share, to within two messages.
func TestARMSRatio(t *testing.T) {
	weights := []float64{4, 1, 2.5}
	a := &armsSender{run: &run{app: &experiment.App{Bytes: 1e9}}, peers: make([]netip.AddrPort, len(weights))}
	a.weigh(weights)
	for n := 1; n < 1000; n++ {
		a.sent[a.next()] += armsMessage
		for i, w := range weights {
			if want := float64(n) * w / 7.5; math.Abs(float64(a.sent[i])/armsMessage-want) > 2 {
				t.Fatalf("after %d messages address %d has %d; want %.2f", n, i, a.sent[i]/armsMessage, want)
			}
		}
	}
}

// struct sctp_sndrcvinfo: flags are the third number of two bytes, the association is the last one of four (include/uapi/linux/sctp.h).
func TestARMSAncillaryData(t *testing.T) {
	b := addrOver(7)
	if n := len(b); n != 48 || binary.NativeEndian.Uint64(b) != 48 || binary.NativeEndian.Uint32(b[8:]) != 132 || binary.NativeEndian.Uint32(b[12:]) != 1 {
		t.Errorf("%x: not 48 bytes of level 132 and type 1", b)
	}
	if binary.NativeEndian.Uint16(b[16+4:]) != 2 || binary.NativeEndian.Uint32(b[16+28:]) != 7 {
		t.Errorf("%x: not SCTP_ADDR_OVER for association 7", b)
	}
}

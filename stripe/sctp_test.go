package stripe

import (
	"testing"
	"unsafe"
)

// Where the fields are in the kernel's structures (include/uapi/linux/sctp.h).
func TestSCTPStructures(t *testing.T) {
	var status statusOfSCTP
	if at, size := unsafe.Offsetof(status.CwndBytes), unsafe.Sizeof(status); at != 160 || size != 176 {
		t.Errorf("sstat_primary.spinfo_cwnd at %d of %d bytes; want 160 of 176", at, size)
	}
	if at := unsafe.Offsetof(status.SRTTms); at != 164 {
		t.Errorf("sstat_primary.spinfo_srtt at %d; want 164", at)
	}
	var stats statsOfSCTP
	if at := unsafe.Offsetof(stats.PacketsIn); at != 168 {
		t.Errorf("sas_ipackets at %d; want 168", at)
	}
}

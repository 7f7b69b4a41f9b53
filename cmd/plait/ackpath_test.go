package main

import (
	"strings"
	"testing"
	"time"

	"plait.dev/plait/daemon"
)

// What there is to know of a receiver without connections, and of a sender that is none.
func TestPrintAckpath(t *testing.T) {
	for want, s := range map[string]daemon.AckpathStatus{
		"receiver: no MPTCP connection has received": {Mode: daemon.Observe},
		"copies are not taken: port in use":          {Mode: daemon.Off, Silent: "port in use"},
		"this kernel can copy no ACKs: no tcx":       {Mode: daemon.On, Lacks: "no tcx"},
	} {
		var out strings.Builder
		printAckpath(&out, s, time.Now())
		if !strings.Contains(out.String(), want) {
			t.Errorf("%+v: got\n%s\nwant %q", s, out.String(), want)
		}
	}
}

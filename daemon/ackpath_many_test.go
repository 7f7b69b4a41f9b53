package daemon

import (
	"strings"
	"testing"
	"time"
)

// A thousand connections that are sent a little every second: the ACKs of most are copied at once; when the receiver's plait dies they come by themselves, and when the
// sender's does as well, and every byte arrives.
func TestAckpathMany(t *testing.T) {
	const many = 1000
	a := newAckHosts(t, true)
	server, client := a.up("  holdout_percent: 0"), a.receiver("mode: on, ratio: 1")
	pairs := a.connections(many)
	arrived, quiet := a.keepSending(pairs, 4<<10, time.Second)
	goesOn := func(what string) {
		until := arrived.Load() + 3*many
		a.eventually(2*time.Minute, what+": connections go on", func() bool { return arrived.Load() >= until })
	}
	a.eventually(3*time.Minute, "the ACKs of most are copied at once", func() bool {
		copied := 0
		for _, f := range a.acks(client).Flows {
			if !f.Copied.IsZero() {
				copied++
			}
		}
		time.Sleep(300 * time.Millisecond) // to ask about 2,000 subflows is work
		return copied >= many*3/4
	})
	client.kill()
	a.eventually(20*time.Second, "the receiver is killed: none of its programs is attached", func() bool { return !strings.Contains(a.attached(), "client") })
	goesOn("the receiver is killed")
	server.kill()
	goesOn("the sender is killed")
	quiet()
	for _, p := range pairs { // while their links are there: they keep the kernel half
		p.close()
	}
	a.eventually(time.Minute, "the connections have ended: no program of plait's is left", func() bool { return len(a.programs()) == 0 })
}

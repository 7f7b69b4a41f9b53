package stripe

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

// A Conn does what programs expect of any net.Conn: deadlines that move, use by many goroutines at once, an end of what waits when it is closed.
func TestIsConn(t *testing.T) {
	overEach(t, func(t *testing.T, over Carrier) {
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
			near, far := both(t, over)
			return near, far, func() { near.Abort(); far.Abort() }, nil
		})
	})
}

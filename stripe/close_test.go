package stripe

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// What ends while others wait for a peer that does not read: to Flush, Abort is no delivery, and to Write, CloseWrite is the end.
func TestWaitersAreTold(t *testing.T) {
	write := func(c *Conn) error { _, err := c.Write(make([]byte, 2*startWindow*maxPayload)); return err }
	for name, c := range map[string]struct {
		wait func(*Conn) error
		end  func(*Conn)
	}{
		"flush, abort":       {(*Conn).Flush, (*Conn).Abort},
		"write, abort":       {write, (*Conn).Abort},
		"write, close write": {write, func(c *Conn) { _ = c.CloseWrite() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimSession(t, simPath{mbps: 80, delay: 5e6, queue: 75000})
				defer s.close()
				_ = s.near.SetWriteDeadline(time.Now().Add(10 * time.Second))
				_ = write(s.near) // until no more is taken
				_ = s.near.SetWriteDeadline(time.Time{})
				ended := make(chan error, 1)
				go func() { ended <- c.wait(s.near) }()
				synctest.Wait()
				c.end(s.near)
				synctest.Wait()
				select {
				case err := <-ended:
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("it ends with %v; want %v", err, net.ErrClosed)
					}
				default:
					t.Error("it waits on")
				}
			})
		})
	}
}

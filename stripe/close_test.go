package stripe

import (
	"errors"
	"io"
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

// Close waits as long as anything goes on: on 10 kbit/s a chunk takes 13 s, longer than Close does without progress. For a link that is away it does not.
func TestCloseOnSlowLine(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSimSession(t, simPath{mbps: 0.01, delay: 300e6, queue: 75000})
			defer s.close()
			data, got := make([]byte, 3*maxPayload), make(chan int64)
			if _, err := s.near.Write(data); err != nil {
				t.Fatal(err)
			}
			go func() { n, _ := io.Copy(io.Discard, s.far); got <- n }()
			if away {
				time.AfterFunc(20*time.Second, s.wires[0].freeze)
			}
			start := time.Now()
			err := s.near.Close()
			took := time.Since(start)
			if s.far.cut(); away {
				if err == nil || took > 20*time.Second+3*closeStall {
					t.Errorf("for a link that is away: %v after %v", err, took)
				}
				<-got
				return
			}
			if n := <-got; n != int64(len(data)) || err != nil {
				t.Errorf("%d of %d bytes have come after %v: %v", n, len(data), took, err)
			}
		})
	}
}

// A connection that this end has closed gives nothing more, as others of package net, whatever the peer has done before.
func TestReadAfterClose(t *testing.T) {
	for what, last := range map[string]func(*Conn){"open": func(*Conn) {}, "ended": func(c *Conn) { _ = c.CloseWrite() }, "closed": func(c *Conn) { go c.Close() }, "aborted": (*Conn).Abort} {
		for how, end := range map[string]func(*Conn) error{"close": (*Conn).Close, "abort": func(c *Conn) error { c.Abort(); return nil }} {
			near, far := both(t, TCP)
			defer far.Abort()
			if _, err := far.Write([]byte("unread")); err != nil {
				t.Fatal(err)
			}
			if err := far.Flush(); err != nil {
				t.Fatal(err)
			}
			if last(far); what == "closed" || what == "aborted" {
				<-near.Done()
			}
			_ = end(near)
			_ = near.SetDeadline(time.Unix(1, 0)) // who takes an end for a timeout would try again for ever
			if n, err := near.Read(make([]byte, 10)); n != 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("read after %s, the peer has %s: %d bytes, %v", how, what, n, err)
			}
			if n, err := near.Write([]byte("more")); n != 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("write after %s, the peer has %s: %d bytes, %v", how, what, n, err)
			}
		}
	}
}

// Closing ends a Read that waits, at once, however long what was written still takes.
func TestCloseEndsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
		defer s.close()
		s.wires[0].freeze()
		if _, err := s.near.Write([]byte("on its way")); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { _, err := s.near.Read(make([]byte, 1)); ended <- err }()
		synctest.Wait()
		go s.near.Close()
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("it ends with %v; want %v", err, net.ErrClosed)
			}
		default:
			t.Error("it waits on")
		}
		time.Sleep(closeStall + 2*closeWait)
	})
}

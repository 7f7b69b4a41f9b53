package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// scraped is a server of metrics in this process.
func scraped(t *testing.T, totals func() Status) (address string) {
	t.Helper()
	l, err := listenMetrics(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = serve(t.Context(), l, metricsHandler(totals, nil, nil), metricsPatience) }()
	return l.Addr().String()
}

// However many ask, the daemon is kept from its heartbeat once a second.
func TestManyScrapes(t *testing.T) {
	var asked atomic.Int32
	address := scraped(t, func() Status {
		asked.Add(1)
		time.Sleep(20 * time.Millisecond)
		return Status{}
	})
	const clients = 40
	begin := time.Now()
	codes := make(chan int, clients)
	for range clients {
		go func() {
			response, err := http.Get("http://" + address + "/metrics")
			if err != nil {
				codes <- 0
				return
			}
			response.Body.Close()
			codes <- response.StatusCode
		}()
	}
	for range clients {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("status %d, want an answer", code)
		}
	}
	if most := 1 + int32(time.Since(begin)/metricsEvery); asked.Load() > most {
		t.Errorf("the daemon was asked %d times by %d clients, want %d at most", asked.Load(), clients, most)
	}
}

// ask writes a question on a new connection.
func ask(t *testing.T, address, question string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprint(c, question)
	return c
}

// Who holds connections holds some of the daemon's file descriptors, and not for long.
func TestHeldScrapes(t *testing.T) {
	rung.Long(t)
	const question = "GET /metrics HTTP/1.1\r\nHost: x\r\n"
	address := scraped(t, func() Status { return Status{} })
	held := []net.Conn{ask(t, address, question+"Content-Length: 9\r\n\r\n")} // which never come
	reads := ask(t, address, "")
	go func() { // and does not read the answers
		for {
			if _, err := fmt.Fprint(reads, question+"\r\n"); err != nil {
				return
			}
		}
	}()
	answered := 0
	for range 2 * metricsConnections {
		c := ask(t, address, question+"\r\n")
		_ = c.SetReadDeadline(time.Now().Add(metricsPatience / 3)) // before those that are held are let go
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			break
		}
		held = append(held, c)
		answered++
	}
	if answered != metricsConnections-2 {
		t.Errorf("%d connections are answered beside two others, want %d in all", answered, metricsConnections)
	}
	time.Sleep(metricsPatience + time.Second)
	last := time.Now().Add(30 * time.Second)
	for i, c := range held {
		_ = c.SetReadDeadline(last)
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("connection %d stays: %v", i, err)
		}
	}
	if err := reads.SetWriteDeadline(time.Now().Add(metricsPatience)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(reads, question); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one that does not read stays: %v", err)
	}
}

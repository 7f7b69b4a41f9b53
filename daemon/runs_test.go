package daemon

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Adjacent segments that are lost are a run, also where an application's writes have made them shorter than what fits; others are none.
func TestRunsOfShortSegments(t *testing.T) {
	for name, c := range map[string]struct {
		lost         func(n int) bool
		single, many uint64
	}{
		"adjacent":             {func(n int) bool { return n >= 2 && n < 6 }, 0, 4},
		"every other, of four": {func(n int) bool { return n < 8 && n%2 == 0 }, 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			client := h.second("-client")
			near, far := h.device(client.ns, "wire", unix.IFF_TUN), h.device(h.ns, "wire", unix.IFF_TUN)
			frames := 0
			go slowly(near, far, 5*time.Millisecond, nil)
			go slowly(far, near, 5*time.Millisecond, func(frame []byte) bool {
				if len(frame) > 1000 {
					frames++
				}
				return len(frame) > 1000 && c.lost(frames-1)
			})
			for ns, address := range map[string]string{h.ns: "10.3.0.1", client.ns: "10.3.0.2"} {
				h.ip("-n " + ns + " addr add " + address + "/24 dev wire")
				h.ip("-n " + ns + " link set wire up")
			}
			p := h.up(takeAll + "\n  policy: fixed:cubic")
			conn, err := h.connectTo("10.3.0.1", 0, client.ns, "")
			h.must(err)
			defer conn.close()
			for i := range 10 { // the initial window
				h.must(send(conn.server, 1000*i, 1000))
			}
			h.must(receive(conn.client, 0, 10_000))
			time.Sleep(250 * time.Millisecond) // the next sample
			h.must(send(conn.server, 10_000, 100))
			h.eventually(5*time.Second, "the losses are told", func() bool {
				for _, s := range h.status(p).Sockets {
					if s.Total.LostSingle == c.single && s.Total.LostBurst == c.many {
						return true
					}
				}
				return false
			})
		})
	}
}

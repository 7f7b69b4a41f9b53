package daemon

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Adjacent segments that are lost are a run, also where an application's writes have made them shorter than what fits; others are none.
func TestRunsOfShortSegments(t *testing.T) {
	const size, segments = 1000, 10 // the initial window
	for name, c := range map[string]struct {
		lost         func(n uint32) bool
		single, many uint64
	}{
		"adjacent":             {func(n uint32) bool { return n >= 2 && n < 6 }, 0, 4},
		"every other, of four": {func(n uint32) bool { return n < 8 && n%2 == 0 }, 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			client := h.second("-client")
			near, far := h.device(client.ns, "wire", unix.IFF_TUN), h.device(h.ns, "wire", unix.IFF_TUN)
			go slowly(near, far, 5*time.Millisecond, nil)
			go slowly(far, near, 5*time.Millisecond, firstTime(func(at uint32) bool { return c.lost(at / size) }))
			for ns, address := range map[string]string{h.ns: "10.3.0.1", client.ns: "10.3.0.2"} {
				h.ip("-n " + ns + " addr add " + address + "/24 dev wire")
				h.ip("-n " + ns + " link set wire up")
			}
			h.patient("10.3.0.2", "wire")
			p := h.up(takeAll + "\n  policy: fixed:cubic")
			transferred := func() (conn pair, took time.Duration) {
				begin := time.Now()
				conn, err := h.connectTo("10.3.0.1", 0, client.ns, "")
				h.must(err)
				h.Cleanup(conn.close)
				h.must(errors.Join(conn.server.SetLinger(0), conn.client.SetLinger(0)))
				for i := range segments {
					h.must(send(conn.server, size*i, size))
				}
				h.must(receive(conn.client, 0, size*segments))
				return conn, time.Since(begin)
			}
			conn, took := transferred()
			for tries := 1; took >= minSampleEvery; tries++ { // a sample in the middle of a run has told of the half of it
				if tries == 20 {
					t.Fatalf("no connection of %d was quicker than a sample comes; the last took %v", tries, took)
				}
				conn, took = transferred()
			}
			time.Sleep(250 * time.Millisecond) // the next sample
			h.must(send(conn.server, size*segments, 100))
			h.eventually(10*time.Second, "the losses are told", func() bool {
				for _, s := range h.status(p).Sockets {
					if s.Local.String() == conn.server.LocalAddr().String() && s.Total.LostSingle == c.single && s.Total.LostBurst == c.many {
						return true
					}
				}
				return false
			})
		})
	}
}

// firstTime has the data of a connection be lost that begins so many bytes behind the first, by TCP over IPv4 without options of IP, but not what is sent again.
func firstTime(lost func(at uint32) bool) func(packet []byte) bool {
	var first, next uint32 // of the connection, and of what it has not sent yet
	return func(packet []byte) bool {
		const syn = 2
		if packet[0]>>4 != 4 {
			return false
		}
		sequence, data := binary.BigEndian.Uint32(packet[24:]), len(packet)-20-int(packet[32]>>4)*4
		if packet[33]&syn != 0 {
			first, next = sequence+1, sequence+1
		}
		if data == 0 || sequence != next {
			return false
		}
		next += uint32(data)
		return lost(sequence - first)
	}
}

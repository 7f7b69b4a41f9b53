package daemon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/signals"
)

// distant is a host 100 ms away, 10.3.0.2 over a wire from 10.3.0.1, that loses what a test says; near is its end of the wire.
func (h *host) distant(loses func(near *os.File, packet []byte) bool) *host {
	h.Helper()
	client := h.second("-client")
	near, far := h.device(client.ns, "wire", unix.IFF_TUN), h.device(h.ns, "wire", unix.IFF_TUN)
	go slowly(near, far, 100*time.Millisecond, nil)
	go slowly(far, near, 100*time.Millisecond, func(packet []byte) bool { return loses != nil && loses(near, packet) })
	for ns, address := range map[string]string{h.ns: "10.3.0.1", client.ns: "10.3.0.2"} {
		h.ip("-n " + ns + " addr add " + address + "/24 dev wire")
		h.ip("-n " + ns + " link set wire up")
	}
	return client
}

// switching is a connection over a path of 200 ms that loses what a test says, under a kernel half whose policy a test changes as it likes.
type switching struct {
	*host
	pair
	clientNS string
	kernel   *kernel
}

// newSwitching begins with an algorithm. loses is asked about each packet with data that the server sends; late has it come all the same, 60 ms later than others.
func newSwitching(t *testing.T, algorithm string, loses func(sequence uint32, late func()) bool) *switching {
	h := newHost(t)
	client := h.distant(func(near *os.File, packet []byte) bool {
		late := func() {
			held := bytes.Clone(packet)
			time.AfterFunc(160*time.Millisecond, func() { _, _ = near.Write(held) })
		}
		return len(packet) > 500 && loses(binary.BigEndian.Uint32(packet[24:]), late)
	})
	var name [16]uint8
	copy(name[:], systemDefault)
	cgroup, err := cgroupID(h.cgroup)
	h.must(err)
	spec, linked, err := bpf.Load()
	h.must(err)
	s := &switching{host: h, clientNS: client.ns}
	h.in(func() (err error) {
		s.kernel, err = loadKernel(spec, linked, bpf.Control{HeartbeatNs: monotonicNs(), StaleNs: uint64(time.Hour), SampleNs: uint64(time.Second), Fallback: name, Cgroup: cgroup})
		return err
	})
	h.Cleanup(func() { s.kernel.Close() })
	s.to(algorithm)
	h.in(func() error { return s.kernel.engage(h.cgroup) })
	s.anew()
	h.Cleanup(s.reset)
	return s
}

// anew makes a connection.
func (s *switching) anew() {
	s.Helper()
	p, err := s.connectTo("10.3.0.1", 0, s.clientNS, "")
	s.must(err)
	s.pair = p
	go func() { _, _ = io.Copy(io.Discard, p.client) }()
}

func (s *switching) reset() {
	s.Helper()
	s.must(errors.Join(s.server.SetLinger(0), s.client.SetLinger(0)))
	s.close()
}

// to has the connection change its algorithm at the next round trip.
func (s *switching) to(algorithm string) {
	s.Helper()
	p, err := compile(Lever{Mode: On, Policy: "fixed:" + algorithm})
	s.must(err)
	s.must(s.kernel.setPolicy(0, p.kernel))
}

// States of a connection's congestion control, as the kernel has them.
const (
	caOpen, caRecovery, caLoss = 0, 3, 4
)

func (s *switching) becomes(state uint8) {
	s.Helper()
	s.eventually(10*time.Second, "the state", func() bool { return s.info(s.server).Ca_state == state })
}

// Westwood knows nothing of a path on which it has just begun: a recovery that ends then leaves Reno's half, and not two packets.
func TestSwitchToWestwoodInRecovery(t *testing.T) {
	const victim = 60
	var packets int
	var lost uint32
	repaired := make(chan bool, 100)
	s := newSwitching(t, "reno", func(sequence uint32, _ func()) bool {
		if packets++; packets == victim {
			lost = sequence
			return true
		}
		if packets > victim && sequence == lost {
			repaired <- true
		}
		return false
	})
	go func() { _ = send(s.server, 0, 4<<20) }()
	<-repaired
	before := s.info(s.server).Snd_ssthresh
	s.to("westwood")
	s.becomes(caOpen)
	if after := s.info(s.server); after.Snd_ssthresh < before || after.Snd_cwnd < before {
		t.Errorf("the recovery ended with a threshold of %d and a window of %d segments, want %d", after.Snd_ssthresh, after.Snd_cwnd, before)
	}
}

// Where a timeout is not repaired yet Hybla grows as Reno does, also if it has just been chosen.
func TestSwitchToHyblaInLoss(t *testing.T) {
	var pass atomic.Int64 // packets to go that are not lost
	pass.Store(1 << 30)
	s := newSwitching(t, "reno", func(uint32, func()) bool { return pass.Add(-1) < 0 })
	h := s.host
	h.must(send(s.server, 0, 400<<10))
	h.acknowledged(s.server)
	pass.Store(0)
	h.must(send(s.server, 0, 60<<10))
	s.becomes(caLoss)
	s.to("hybla")
	before := s.info(s.server)
	pass.Store(1)
	after := before
	h.eventually(10*time.Second, "one segment is acknowledged", func() bool { after = s.info(s.server); return after.Bytes_acked > before.Bytes_acked })
	if after.Ca_state != caLoss || after.Snd_cwnd > 2 {
		t.Errorf("after one ACK in state %d it has a window of %d segments, want at most 2", after.Ca_state, after.Snd_cwnd)
	}
}

// A recovery that turns out to have been for nothing leaves the window of before: while it lasts, and where that ends it.
func TestWestwoodUndoes(t *testing.T) {
	const first, window = 100, 40       // of the flight before it is in
	const flights = (first + 40) * 1448 // that make as much, and then wait for all to be acknowledged
	for name, sends := range map[string]func(*switching, chan struct{}){
		"while it lasts": func(s *switching, _ chan struct{}) { go func() { _ = send(s.server, 0, 1<<30) }() },
		"at its end": func(s *switching, repeated chan struct{}) {
			s.eventually(time.Minute, "a flight with one that is repeated", func() bool {
				s.must(send(s.server, 0, flights))
				s.acknowledged(s.server)
				select {
				case <-repeated:
					return true
				default:
					return false
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var packets int
			var held uint32
			var heldAt time.Time
			found := false
			repeated := make(chan struct{})
			s := newSwitching(t, "westwood", func(sequence uint32, late func()) bool {
				packets++
				switch {
				case found || packets < first:
				case !heldAt.IsZero() && sequence == held:
					found = true
					close(repeated)
				case time.Since(heldAt) > time.Second: // the one before has come by now, and was not repeated: on a busy machine what is behind it may come too late for that
					held, heldAt = sequence, time.Now()
					late()
					return true
				}
				return false
			})
			sends(s, repeated)
			select {
			case <-repeated:
			case <-time.After(time.Minute):
				t.Fatal("nothing that came late was repeated")
			}
			s.becomes(caOpen)
			if after := s.info(s.server); after.Snd_cwnd < window {
				t.Errorf("the window is %d segments, want %d at least", after.Snd_cwnd, window)
			}
		})
	}
}

// BBR has 4 packets on the way while it looks for the shortest round trip: who takes over then has the window of before.
func TestSwitchFromBBRInProbeRTT(t *testing.T) {
	const probes = 4
	s := newSwitching(t, "bbr", func(uint32, func()) bool { return false })
	s.patient("10.3.0.2", "wire") // a timeout makes the window as small
	go func() { _ = send(s.server, 0, 1<<30) }()
	var before uint32
	s.eventually(40*time.Second, "it looks for the shortest round trip", func() bool {
		now := s.window(s.server)
		if now > probes {
			before = now // the last one: slow start had more
		}
		return before > 0 && now <= probes
	})
	s.to("reno")
	s.eventually(10*time.Second, "the other takes over", func() bool { return signals.Algorithm(s.state().get("plait_sock", "algorithm")) == signals.Reno })
	if after := s.window(s.server); after < before/4 {
		t.Errorf("it takes over with a window of %d segments, before it was %d", after, before)
	}
}

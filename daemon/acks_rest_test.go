package daemon

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// rest makes the flow one that rests, and was woken some time ago; useful says whether that was of use.
func (a *ackPair) rest(woken time.Duration, useful uint8) {
	a.Helper()
	r, _ := a.counted()
	var clock unix.Timespec
	a.must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock))
	now := uint64(clock.Nano())
	r.Rests, r.Useful, r.SeenAtNs, r.WokenAtNs = 1, useful, now, now-uint64(woken)
	a.must(a.receiver.Maps[bpf.AcksMapPlaitAckRoutes].Put(a.there, &r))
}

// write sends something that is acknowledged at once, 60 times, and says how many ACKs came, how many copies, and how many there would be of a flow that rests.
func (a *ackPair) write(b []byte) (acks, copies, resting uint64) {
	a.Helper()
	r, l := a.counted()
	began := time.Now()
	for range 60 {
		_, err := a.served.Write(b)
		a.must(err)
		time.Sleep(5 * time.Millisecond)
	}
	resting = uint64(time.Since(began)/(50*time.Millisecond)) + 2
	a.eventually(10*time.Second, "all ACKs have come", func() bool {
		unacked, err := unix.IoctlGetInt(a.socket(), unix.SIOCOUTQ)
		a.must(err)
		return unacked == 0
	})
	time.Sleep(100 * time.Millisecond) // what is a duplicate is on its way still
	r2, l2 := a.counted()
	return uint64(l2.Natives - l.Natives), r2.Copies - r.Copies, resting
}

// Of a flow whose sender has no use for copies few are made; after a loss, or a pause, all, unless that was in vain a moment ago.
func TestACKCopiesRest(t *testing.T) {
	segment := bytes.Repeat([]byte("lose one "), 300) // two packets
	var losing atomic.Bool
	a := newSlowPair(t, 20*time.Millisecond, 0, func(b []byte) bool { return len(b) > 1000 && losing.Swap(false) })
	h, far := a.host, a.far
	go func() { _, _ = io.Copy(io.Discard, a.conn) }()

	h.must(a.sender.Maps[bpf.AcksMapPlaitAckNatives].Put(uint32(a.socket()), bpf.AckNative{Closed: 1})) // so its round trip is that of the slow way
	if acks, copies, _ := a.write(segment); acks < 30 || copies != acks {
		t.Errorf("%d copies of %d ACKs, want all, and 30 at the least", copies, acks)
	}
	var acks, copies, most uint64
	for range 10 { // on a busy machine an ACK is so late now and then that a segment is sent again, of which the next ACK tells as of a loss; or the writes take too long
		before := far.counter("TcpRetransSegs")
		a.rest(6*time.Second, 0)
		acks, copies, most = a.write(segment)
		if far.counter("TcpRetransSegs") == before && acks >= 2*most {
			break
		}
	}
	if copies > most || copies == 0 || acks < 2*most {
		t.Errorf("at rest %d copies of %d ACKs, want 1 to %d", copies, acks, most)
	}
	for _, c := range []struct {
		woken  time.Duration
		useful uint8
		wakes  bool
	}{{31 * time.Second, 0, true}, {6 * time.Second, 0, false}, {6 * time.Second, 1, true}} {
		a.rest(c.woken, c.useful)
		losing.Store(true)
		if acks, copies, most := a.write(segment); losing.Load() || c.wakes != (copies > most) {
			t.Errorf("after a loss, and %v after the last waking (useful: %d), %d copies of %d ACKs, at rest up to %d; want all: %v", c.woken, c.useful, copies, acks, most, c.wakes)
		}
	}
	programs := &ackPrograms{Collection: a.receiver}
	for _, rests := range []uint8{0, 1} { // as the daemon has it when the sender used one
		r, _ := a.counted()
		r.Rests = rests
		h.must(programs.copyTo(a.there, r))
	}
	if r, _ := a.counted(); r.Rests != 1 || r.Useful != 1 {
		t.Errorf("rests again after copies were used: %+v", r)
	}
	a.rest(31*time.Second, 0)
	time.Sleep(1100 * time.Millisecond)
	if acks, copies, _ := a.write(segment); copies != acks {
		t.Errorf("after a pause %d copies of %d ACKs, want all", copies, acks)
	}
}

// So many copies have been made of late that the next would be of the time to come: the ACKs go alone until then.
func TestACKCopiesAreFew(t *testing.T) {
	a := newSlowPair(t, 20*time.Millisecond, 0, nil)
	go func() { _, _ = io.Copy(io.Discard, a.conn) }()
	segment := make([]byte, 3000)
	paid := func(ahead time.Duration) {
		r, _ := a.counted()
		var clock unix.Timespec
		a.must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock))
		r.PaidUntilNs = uint64(clock.Nano() + int64(ahead))
		a.must(a.receiver.Maps[bpf.AcksMapPlaitAckRoutes].Put(a.there, &r))
	}
	for _, c := range []struct {
		ahead  time.Duration
		copied bool
	}{{0, true}, {time.Minute, false}, {60 * time.Millisecond, true}, {-time.Minute, true}} {
		paid(c.ahead)
		acks, copies, _ := a.write(segment)
		if acks < 30 || c.copied && copies != acks || !c.copied && copies != 0 {
			t.Errorf("paid for %v ahead: %d copies of %d ACKs; want all: %v, and 30 ACKs at the least", c.ahead, copies, acks, c.copied)
		}
	}
	paid(time.Minute)
	r, _ := a.counted()
	r.Rests = 1
	a.must((&ackPrograms{Collection: a.receiver}).copyTo(a.there, r)) // as the daemon does with what it knows of
	if now, _ := a.counted(); now.PaidUntilNs != r.PaidUntilNs || now.Rests != 1 {
		t.Errorf("after the daemon has written it: %+v, want as it was", now)
	}
}

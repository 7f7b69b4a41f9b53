package queue

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

func ip(t *testing.T, arguments string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(arguments)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", arguments, err, out)
	}
}

// wire is a namespace with two pairs of devices, from sender to near and from far to receiver. Nothing but what a test sends is on them.
func wire(t *testing.T) (ns string) {
	t.Helper()
	rung.Netns(t)
	ns = fmt.Sprintf("plait-queue-%d", os.Getpid())
	ip(t, "netns add "+ns)
	t.Cleanup(func() { ip(t, "netns del "+ns) })
	for _, command := range []string{"sysctl -qw net.ipv6.conf.default.disable_ipv6=1", "ip link add sender type veth peer name near", "ip link add receiver type veth peer name far",
		"ip link set sender up", "ip link set near up", "ip link set far up", "ip link set receiver up", "tc qdisc add dev near clsact"} {
		ip(t, "netns exec "+ns+" "+command)
	}
	return ns
}

// packets is a socket for whole packets of a device.
func packets(t *testing.T, ns, device string) (fd int) {
	t.Helper()
	err := netns.Do(ns, func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: dev.Index}) // ETH_P_ALL, in the network's order
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// A full queue drops, one whose packets have been transmitted does not, and its length is known at every moment.
func TestQueue(t *testing.T) {
	const limit, bytes, each = 3, 1000, time.Second
	ns := wire(t)
	q, err := Attach(Config{NS: ns, Near: "near", Far: "far", Packets: limit, RateBps: int64(bytes * 8 * time.Second / each)})
	if err != nil {
		t.Fatal(err)
	}
	in, out := packets(t, ns, "sender"), packets(t, ns, "receiver")
	var wrong []string
	for range 5 {
		var late bool
		if wrong, late = passes(t, q, in, out, bytes, each); !late {
			break
		}
		time.Sleep(limit * each) // until the queue is empty
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// passes sends packets and tells what is wrong with which of them pass. On a busy machine it may be late: then the next packet has been transmitted before it looks.
func passes(t *testing.T, q *Queue, in, out, bytes int, each time.Duration) (wrong []string, late bool) {
	t.Helper()
	sent, seen := 0, map[byte]bool{}
	receive := func(took bool) {
		frame := make([]byte, 2*bytes)
		for n, err := unix.Read(out, frame); err == nil; n, err = unix.Read(out, frame) {
			if n == bytes && took {
				seen[frame[14]] = true
			}
		}
	}
	receive(false)
	send := func(n int) {
		for range n {
			sent++
			frame := make([]byte, bytes)
			frame[12], frame[13], frame[14] = 0x88, 0xb5, byte(sent) // an Ethernet type for experiments, IEEE 802
			if _, err := unix.Write(in, frame); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
			receive(true)
		}
	}
	expect := func(when string, before time.Time, length int, arrived ...byte) {
		if got, err := q.Length(); err != nil || got != length {
			wrong = append(wrong, fmt.Sprintf("%s: %d packets are in the queue (%v), want %d", when, got, err, length))
		}
		if passed := slices.Sorted(maps.Keys(seen)); !slices.Equal(passed, arrived) {
			wrong = append(wrong, fmt.Sprintf("%s: %v passed, want %v", when, passed, arrived))
		}
		late = late || time.Now().After(before)
	}
	begin := time.Now()
	expect("before the first packet", begin.Add(each), 0)
	begin = time.Now()
	send(5)
	expect("of five packets at once", begin.Add(each), 3, 1, 2, 3)
	time.Sleep(time.Until(begin.Add(3 * each / 2)))
	expect("after one and a half transmissions", begin.Add(2*each), 2, 1, 2, 3)
	send(2)
	expect("of two packets then", begin.Add(2*each), 3, 1, 2, 3, 6)
	time.Sleep(time.Until(begin.Add(9 * each / 2)))
	expect("when all have been transmitted", time.Now().Add(each), 0, 1, 2, 3, 6)
	begin = time.Now()
	send(1)
	expect("of one packet then", begin.Add(each), 1, 1, 2, 3, 6, 8)
	return wrong, late
}

// The netem of a device that loses its carrier loses all it has, and nothing waits then.
func TestQueueWithoutCarrier(t *testing.T) {
	ns := wire(t)
	q, err := Attach(Config{NS: ns, Near: "near", Far: "far", Packets: 1, RateBps: 8})
	if err != nil {
		t.Fatal(err)
	}
	in := packets(t, ns, "sender")
	expect := func(when string, length int) {
		t.Helper()
		got := -1
		for end := time.Now().Add(20 * time.Second); got != length && time.Now().Before(end); time.Sleep(time.Millisecond) {
			if got, err = q.Length(); err != nil {
				t.Fatal(err)
			}
		}
		if got != length {
			t.Errorf("%s: %d packets are in the queue, want %d", when, got, length)
		}
	}
	for _, state := range []string{"", "down", "up"} {
		if state != "" {
			ip(t, "netns exec "+ns+" ip link set receiver "+state)
			expect("with the receiver "+state, 0)
		}
		if state != "down" {
			if _, err := unix.Write(in, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			expect("of one packet", 1)
		}
	}
}

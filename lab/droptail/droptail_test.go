package droptail

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

// A hundred packets enter at once a link that takes 100 s for each: those the queue holds pass, the others are dropped. It gets
// shorter when a packet has been transmitted, and not before. The test does not wait for that: it asks for times to come.
func TestQueue(t *testing.T) {
	rung.Netns(t)
	const (
		packets, sent    = 7, 100
		bytes, bytesPerS = 1000, 10
		each             = uint64(bytes * time.Second / bytesPerS)
	)
	ns := fmt.Sprintf("plait-test-%d-droptail", os.Getpid())
	run(t, "ip netns add "+ns)
	t.Cleanup(func() { run(t, "ip netns del "+ns) })
	in := "ip netns exec " + ns + " "
	run(t, in+"sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
	for _, pair := range [][2]string{{"source", "near"}, {"far", "sink"}} {
		run(t, in+"ip link add "+pair[0]+" type veth peer name "+pair[1])
		run(t, in+"ip link set "+pair[0]+" up")
		run(t, in+"ip link set "+pair[1]+" up")
	}
	run(t, in+"tc qdisc add dev near clsact")
	q, err := Attach(Config{NS: ns, Near: "near", Far: "far", Priority: 2, Packets: packets, BytesPerS: bytesPerS})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := q.Length(); n != 0 || err != nil {
		t.Errorf("a new queue has %d packets, %v", n, err)
	}
	begin := now(t)
	inject(t, ns, sent, bytes)
	end := now(t)
	if got := run(t, in+"cat /sys/class/net/far/statistics/tx_packets"); strings.TrimSpace(got) != fmt.Sprint(packets) {
		t.Errorf("%s packets passed, want %d", got, packets)
	}
	if got := run(t, in+"tc -s qdisc show dev near clsact"); !strings.Contains(got, fmt.Sprintf("dropped %d,", sent-packets)) {
		t.Errorf("want %d packets dropped, got %s", sent-packets, got)
	}
	if n, err := q.Length(); n != packets || err != nil {
		t.Errorf("%d packets, want %d; %v", n, packets, err)
	}
	for k := range uint64(packets) { // packet k is the last that has been transmitted, or the next
		for at, want := range map[uint64]int{begin + (k+1)*each - 1: packets - int(k), end + (k+1)*each: packets - int(k) - 1} {
			if got, err := q.length(at); got != want || err != nil {
				t.Errorf("after %v: %d packets, want %d; %v", time.Duration(at-begin), got, want, err)
			}
		}
	}
}

func run(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

func now(t *testing.T) uint64 {
	t.Helper()
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		t.Fatal(err)
	}
	return uint64(at.Nano())
}

// inject sends Ethernet frames of so many bytes out of the device source.
func inject(t *testing.T, ns string, frames, bytes int) {
	t.Helper()
	err := netns.Do(ns, func() error {
		source, err := net.InterfaceByName("source")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := make([]byte, bytes)
		binary.BigEndian.PutUint16(frame[12:], 0x88b5) // for experiments (IEEE 802)
		for range frames {
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: source.Index}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

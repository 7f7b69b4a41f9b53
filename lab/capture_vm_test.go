package lab

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"plait.dev/plait/lab/experiment"
)

// echoRequests are the times of ICMPv6's echo requests in a capture of Ethernet frames (pcap-savefile(5), of a little-endian guest).
func echoRequests(t *testing.T, capture []byte) []time.Duration {
	t.Helper()
	const header, icmp6, request = 24, 58, 128
	if len(capture) < header || binary.LittleEndian.Uint32(capture) != 0xa1b2c3d4 {
		t.Fatalf("%d bytes are no capture with times in microseconds", len(capture))
	}
	var at []time.Duration
	for rest := capture[header:]; len(rest) > 0; {
		seconds, us, length := binary.LittleEndian.Uint32(rest), binary.LittleEndian.Uint32(rest[4:]), int(binary.LittleEndian.Uint32(rest[8:]))
		frame := rest[16 : 16+length]
		if len(frame) > 54 && frame[12] == 0x86 && frame[13] == 0xdd && frame[20] == icmp6 && frame[54] == request {
			at = append(at, time.Duration(seconds)*time.Second+time.Duration(us)*time.Microsecond)
		}
		rest = rest[16+length:]
	}
	return at
}

// A capture is kept where --captures says, under its name, and holds every packet at its time.
func TestCapture(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holds(t, runInto(t, dir, 1, "testdata/pcap.yaml", experiment.Options{}))
	capture, err := os.ReadFile(filepath.Join(dir, "pcap-run-seed1-client-path.pcap"))
	if err != nil {
		t.Fatal(err)
	}
	at := echoRequests(t, capture)
	if len(at) != 20 {
		t.Fatalf("%d of 20 requests", len(at))
	}
	for i := range at {
		if late := at[i] - at[0] - time.Duration(i)*50*time.Millisecond; late.Abs() > time.Millisecond {
			t.Errorf("request %d comes %v late", i+1, late)
		}
	}
}

// The kinds of retransmissions have all segments, of buffers with several as well, on every kernel.
func TestRetransmissionKinds(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{"6.1", "6.12", "7.2"} {
		holds(t, runFile(t, 1, "testdata/kinds.yaml", experiment.Options{Set: []string{"kernel=" + kernel}}))
	}
}

// Bursts of an open loop begin on time, those of a closed one when the last has arrived.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	holds(t, runFile(t, 1, "testdata/open-loop.yaml", experiment.Options{}))
}

// What a LAN brings to each of its nodes is counted where it comes out.
func TestLANCounts(t *testing.T) {
	t.Parallel()
	holds(t, runFile(t, 1, "testdata/lan.yaml", experiment.Options{}))
}

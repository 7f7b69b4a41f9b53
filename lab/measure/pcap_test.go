package measure

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"plait.dev/plait/internal/rung"
)

func TestMessageBuffer(t *testing.T) {
	b := messageBuffer{listening: make(chan struct{})}
	for _, s := range []string{"tcpdump: list", "ening on a, link-type EN10MB\n", "3 packets captured\n12 packets dropped by kernel\n"} {
		select {
		case <-b.listening:
			if s[0] == 'e' {
				t.Error("listening too early")
			}
		default:
		}
		_, _ = b.Write([]byte(s)) // never fails
	}
	<-b.listening
	if got := lost.FindString(b.String()); got != "12 packets dropped by kernel" {
		t.Errorf("lost %q of %q", got, b.String())
	}
	if lost.MatchString("0 packets dropped by kernel") {
		t.Error("none counts as lost")
	}
}

func TestPacketBuffer(t *testing.T) {
	half := make([]byte, 5)
	b := packetBuffer{Buffer: *bytes.NewBuffer(make([]byte, captureLimitBytes-2*len(half), captureLimitBytes))} // room for two of them
	for i, full := range []bool{false, false, true} {
		if n, err := b.Write(half); n != len(half) || err != nil || b.full != full {
			t.Errorf("write %d: %d, %v, full %v", i, n, err, b.full)
		}
	}
}

func TestCapture(t *testing.T) {
	if _, err := openCaptures([]string{"client"}); err == nil {
		t.Error("a name without link was accepted")
	}
	rung.Netns(t)
	sender, _, receiver := threeNodes(t)
	if _, err := openCaptures([]string{sender + "/none"}); err == nil {
		t.Error("a capture on an interface that is not there")
	}
	c, err := openCaptures([]string{sender + "/a"})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, sender, 23574, 100000)
	receive(t, receiver, "[2001:db8:a::1]:23574", false, 100000, func() {})
	out := &Outcome{Files: map[string][]byte{}}
	if err := c.finish(0, out); err != nil {
		t.Fatal(err)
	}
	packets, payload := readPcap(t, out.Files[sender+"-a.pcap"])
	if packets < 100000/1440 || payload < 100000 {
		t.Errorf("%d packets with %d bytes captured of a transfer of 100000", packets, payload)
	}
}

// readPcap counts the packets of a capture and their lengths on the wire.
func readPcap(t *testing.T, b []byte) (packets, bytes int) {
	t.Helper()
	const header, record = 24, 16
	if len(b) < header || binary.NativeEndian.Uint32(b) != 0xa1b2c3d4 {
		t.Fatal(fmt.Errorf("no pcap header in %d bytes", len(b)))
	}
	for b = b[header:]; len(b) >= record; packets++ {
		kept := int(binary.NativeEndian.Uint32(b[8:]))
		bytes += int(binary.NativeEndian.Uint32(b[12:]))
		if kept > 128 || record+kept > len(b) {
			t.Fatalf("packet %d keeps %d bytes", packets, kept)
		}
		b = b[record+kept:]
	}
	return packets, bytes
}

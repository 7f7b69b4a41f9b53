package stripe

import (
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"
)

// says is a wire on which a peer has said something.
type says struct {
	wire
	io.Reader
}

func (s says) Read(p []byte) (int, error) { return s.Reader.Read(p) }
func (says) Write(p []byte) (int, error)  { return len(p), nil }

const command = "a\x1b]0;title\a\nplait: all is well" // to a terminal, and a line of its own

// What a peer says cannot command the terminal on which a program tells of its errors and links.
func TestPeerTextIsPrintable(t *testing.T) {
	const printed = "a?]0;title??plait: all is well"
	there := welcome{Link: command}
	zoned := netip.AddrPortFrom(netip.MustParseAddr("2001:db8::1").WithZone(command), 1)
	told := bounded([]Peer{{Link: command, Addrs: []netip.AddrPort{zoned}}}, 1)
	_, refused := greet(says{Reader: bytes.NewReader(appendFrame(nil, frameClose, []byte(command)))}, hello{})
	accepted, err := greet(says{Reader: bytes.NewReader(appendJSON(nil, frameWelcome, there))}, hello{})
	if err != nil {
		t.Fatal(err)
	}
	dialed, err := readHello(says{Reader: bytes.NewReader(appendJSON(nil, frameHello, hello{Version: version, Session: make([]byte, 16), Path: 1, Link: command}))})
	if err != nil {
		t.Fatal(err)
	}
	broken := quicError(&quic.TransportError{Remote: true, ErrorMessage: command}) // before it has shown a key
	for what, got := range map[string]string{"refusal": refused.Error(), "reason over QUIC": broken.Error(), "farewell": closedByPeer(command).Error(), "link of a list": told[0].Link, "link of a path": accepted.Link, "link of a dialer": dialed.Link} {
		if !strings.HasSuffix(got, printed) {
			t.Errorf("%s: %q", what, got)
		}
	}
	if got := told[0].Addrs[0].String(); got != "[2001:db8::1]:1" { // it is in the reason why no path leads there
		t.Errorf("address of a list: %q", got)
	}
}

package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// why is what the daemon says of the server's end of a connection it has nothing of.
func (h *host) why(d *Daemon, c pair) string {
	h.Helper()
	var err error
	h.in(func() error {
		_, err = d.Why(c.server.LocalAddr().String() + "-" + c.client.LocalAddr().String())
		return nil
	})
	if !errors.Is(err, ErrNoSocket) {
		h.Fatalf("got %v, want that nothing is known", err)
	}
	return err.Error()
}

func (h *host) says(said, uses, want string) {
	h.Helper()
	if !strings.Contains(said, ", which uses "+uses+": ") || !strings.Contains(said, want) {
		h.Errorf("got  %s\nwant that it uses %s, and %q", said, uses, want)
	}
}

// Of a connection plait does not manage, why says the reason: in the host's namespace and in others.
func TestWhyNot(t *testing.T) {
	h := newHost(t)
	other := h.second("-2")
	h.enter(h.outside)
	outside := h.connect(0, "")
	h.enter(h.cgroup)
	d := h.inside(fmt.Sprintf("%s\n  rules:\n    - {port: %d, mode: off}\n    - {port: %d, holdout_percent: 100}\n    - {port: %d, policy: fixed:bic}", takeAll, portOff, portNew, portMany), new(bytes.Buffer))
	h.says(h.why(d, h.connect(portOff, "")), systemDefault, "switched off by rule port "+fmt.Sprint(portOff))
	heldOut := h.connect(portNew, "")
	h.transfers("held out", heldOut)
	h.says(h.why(d, heldOut), systemDefault, "held out: ")
	h.choose(heldOut.server, otherChoice)
	h.says(h.why(d, heldOut), otherChoice, "held out until its application chose that")
	h.says(h.why(d, other.connect(portNew, "")), systemDefault, "held out: ")
	h.says(h.why(d, h.connect(0, otherChoice)), otherChoice, "its application, or the route, has chosen that")
	h.says(h.why(d, h.connect(0, "")), bpf.Name, "it has sent nothing yet")
	leaves := h.connect(0, "")
	raw, err := leaves.server.SyscallConn()
	h.must(err)
	h.must(chosen(otherChoice)("", "", raw))
	h.says(h.why(d, leaves), otherChoice, "it was plait's until its application chose that")
	h.says(h.why(d, outside), systemDefault, "it is not of cgroup "+h.cgroup)
	slow := h.connect(portMany, "")
	h.slowerIn(d.kernel.Maps["plait_latencies"], netip.MustParsePrefix("127.0.0.0/24"), 3)
	h.must(d.revert())
	h.must(transfer(slow, 1000))
	h.says(h.why(d, slow), systemDefault, "127.0.0.0/24 is given back since 20")
	h.says(h.why(d, slow), systemDefault, ": bursts took 2.00 times as long with policy fixed:bic, rule port "+fmt.Sprint(portMany))
	h.says(h.why(d, h.connect(portMany, otherChoice)), otherChoice, "its application, or the route, has chosen that") // there, too
	h.choose(slow.server, otherChoice)
	h.says(h.why(d, slow), otherChoice, "its application has chosen that")
	h.connect(portOff, "")
	h.connect(portOff, "")
	for name, want := range map[string]string{
		"127.0.0.1:1":                     "no such connection in any network namespace that plait finds",
		fmt.Sprint("127.0.0.1:", portOff): "connections have this end, and plait manages none of them",
	} {
		var err error
		if h.in(func() error { _, err = d.Why(name); return nil }); !errors.Is(err, ErrNoSocket) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// A connection that plait had until the rules changed to mode observe was neither refused nor chosen for by its application.
func TestWhyNotObserved(t *testing.T) {
	h := newHost(t)
	d := h.inside("  holdout_percent: 0", new(bytes.Buffer))
	c := h.connect(0, "")
	h.must(transfer(c, 1000))
	h.write(d.options.ConfigPath, h.dir+"/control", "  mode: observe")
	h.in(d.Reload)
	h.says(h.why(d, c), systemDefault, "it is older than mode observe, which measures connections made since")
	h.choose(c.server, otherChoice)
	h.says(h.why(d, c), otherChoice, "its application has chosen that")
}

// The cookie, as ss -e shows it, is a name, too.
func TestWhyNotByCookie(t *testing.T) {
	h := newHost(t)
	p := h.up("  holdout_percent: 100")
	c := h.connect(0, "")
	raw, err := c.server.SyscallConn()
	h.must(err)
	var cookie uint64
	h.must(raw.Control(func(fd uintptr) { cookie, err = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE) }))
	h.must(err)
	_, err = p.Why(fmt.Sprintf("sk:%x", cookie))
	if !errors.Is(err, ErrNoSocket) || !strings.Contains(err.Error(), c.server.LocalAddr().String()+"-"+c.client.LocalAddr().String()+", which uses "+systemDefault+": held out") {
		t.Errorf("got %v, want the server's end, and that it is held out", err)
	}
}

// Where congestion is off for all connections, there is nothing to look for.
func TestWhyNotOff(t *testing.T) {
	h := newHost(t)
	p := h.up("  mode: off")
	if _, err := p.Why("127.0.0.1:1"); !errors.Is(err, ErrNoSocket) || !strings.Contains(err.Error(), "congestion was off for all of them when it came up") {
		t.Errorf("got %v, want that congestion is off", err)
	}
}

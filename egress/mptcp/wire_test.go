package mptcp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// attribute writes one as the kernel does, on a little-endian host.
func attribute(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

func native32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// An event of a subflow that died, laid out by hand, with an attribute of the future.
func TestParseEvent(t *testing.T) {
	v4 := bytes.Join([][]byte{
		attribute(1, native32(0xdecade)...), attribute(2, 2, 0), attribute(3, 7), attribute(4, 9), attribute(5, 192, 0, 2, 1),
		attribute(7, 198, 51, 100, 1), attribute(9, 0x01, 0xbb), attribute(10, 0x80, 0x01), attribute(11, 1), attribute(12, byte(syscall.ETIMEDOUT)),
		attribute(99, 1, 2, 3),
	}, nil)
	got, err := parseEvent(11, v4)
	want := Event{
		Type: SubClosed, Token: 0xdecade, Err: syscall.ETIMEDOUT,
		Subflow: Subflow{Local: netip.MustParseAddrPort("192.0.2.1:443"), Remote: netip.MustParseAddrPort("198.51.100.1:32769"), LocalID: 7},
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	mapped := netip.MustParseAddr("::ffff:192.0.2.1")
	v6 := bytes.Join([][]byte{attribute(1, native32(1)...), attribute(6, mapped.AsSlice()...), attribute(13, 2, 0)}, nil)
	if got, err = parseEvent(1, v6); err != nil || got.Local.Addr() != mapped || !got.Server {
		t.Errorf("got %+v, %v, want a server's with the address as it came", got, err)
	}
	if got, err = parseEvent(1, attribute(18, 1)); err != nil || !got.Server {
		t.Errorf("got %+v, %v, want a server's, as Linux before 6.18 writes it", got, err)
	}
	for what, b := range map[string][]byte{"short address": attribute(5, 1, 2, 3), "long port": attribute(9, 1, 2, 3), "cut off": v4[:len(v4)-6]} {
		if _, err := parseEvent(11, b); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// Two events in one message of the socket, and what is too short or says that it is longer than it is.
func TestParseEvents(t *testing.T) {
	message := func(command EventType, attributes []byte) []byte {
		b := append(native32(uint32(20+len(attributes))), make([]byte, 12)...)
		return append(append(b, byte(command), 1, 0, 0), attributes...)
	}
	b := append(message(Closed, attribute(1, native32(7)...)), message(SubEstablished, attribute(1, native32(8)...))...)
	all, err := parseEvents([]Event{{Token: 6}}, b)
	if err != nil || len(all) != 3 || all[1].Type != Closed || all[1].Token != 7 || all[2].Type != SubEstablished || all[2].Token != 8 {
		t.Errorf("got %+v, %v, want two after the one that was there", all, err)
	}
	for what, b := range map[string][]byte{"header alone": b[:16], "cut off": b[:26], "no length": make([]byte, 20)} {
		if _, err := parseEvents(nil, b); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// A command against the bytes the kernel's policy asks for.
func TestEncodeCommand(t *testing.T) {
	got, err := encodeCommand(5, &address{addr: netip.MustParseAddr("192.0.2.1"), port: 443, flags: flagBackup}, &address{addr: netip.IPv6Loopback()}, 7)
	local := bytes.Join([][]byte{attribute(1, 2, 0), attribute(3, 192, 0, 2, 1), attribute(5, 0xbb, 0x01), attribute(6, 4, 0, 0, 0)}, nil)
	remote := bytes.Join([][]byte{attribute(1, 10, 0), attribute(4, netip.IPv6Loopback().AsSlice()...)}, nil)
	const nested = 1 << 15
	want := bytes.Join([][]byte{attribute(1|nested, local...), attribute(4, native32(5)...), attribute(5, 7), attribute(6|nested, remote...)}, nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got  %x, %v\nwant %x", got, err, want)
	}
}

// answerOf writes what sock_diag says of a socket.
func answerOf(family, state uint8, attributes ...[]byte) []byte {
	b := make([]byte, diagMessageLen)
	b[0], b[1], b[5], b[7] = family, state, 80, 99
	copy(b[8:], netip.MustParseAddr("192.0.2.1").AsSlice())
	copy(b[24:], netip.MustParseAddr("198.51.100.1").AsSlice())
	return append(b, bytes.Join(attributes, nil)...)
}

func TestParseDiag(t *testing.T) {
	info := make([]byte, 40)
	copy(info[infoFlags:], native32(infoFallback))
	copy(info[infoToken:], native32(77))
	s, err := parseDiag(answerOf(unix.AF_INET, 5, attribute(diagInfo, info...)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConnection(s)
	if err != nil || c.Token != 77 || !c.Fallback || !c.Closing || c.Local.String() != "192.0.2.1:80" || c.Remote.String() != "198.51.100.1:99" {
		t.Errorf("got %+v, %v", c, err)
	}
	ulp := attribute(diagULPInfo, attribute(ulpInfoMPTCP, bytes.Join([][]byte{
		attribute(subflowTokenLocal, native32(77)...), attribute(subflowFlags, native32(1<<2|1<<5)...), attribute(subflowIDLocal, 40)}, nil)...)...)
	if s, err = parseDiag(answerOf(unix.AF_INET, 1, ulp)); err != nil {
		t.Fatal(err)
	}
	f, token, flags, err := parseSubflow(s)
	if err != nil || token != 77 || f.LocalID != 40 || !f.Backup || flags&subflowFlagJoin == 0 {
		t.Errorf("got %+v, token %d, flags %b, %v", f, token, flags, err)
	}
	// The first subflow comes to the front, and a flag of ours says that this host is the client.
	first := Subflow{Local: netip.MustParseAddrPort("192.0.2.1:1")}
	c = Connection{Server: true}
	c.take(f, flags)
	c.take(first, 1)
	if c.Subflows[0] != first || !c.Server {
		t.Errorf("got %+v, want the first subflow in front, of a server", c)
	}
	if c.take(f, 1<<3); c.Server {
		t.Error("a connection with a subflow this host opened counts as a client's")
	}
	if _, err := parseDiag(make([]byte, 20)); err == nil {
		t.Error("20 bytes: no error")
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add(uint8(10), bytes.Join([][]byte{attribute(1, 1, 2, 3, 4), attribute(5, 192, 0, 2, 1), attribute(9, 0, 80)}, nil))
	f.Fuzz(func(t *testing.T, command uint8, b []byte) {
		if e, err := parseEvent(command, b); err != nil && e != (Event{}) {
			t.Errorf("error %v with event %+v", err, e)
		}
	})
}

func FuzzParseDiag(f *testing.F) {
	f.Add(answerOf(unix.AF_INET6, 1, attribute(diagInfo, make([]byte, 40)...), attribute(diagULPInfo, attribute(ulpInfoMPTCP, attribute(subflowIDLocal, 1)...)...)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseDiag(b)
		if err != nil {
			return
		}
		if !s.local.IsValid() || !s.remote.IsValid() {
			t.Errorf("socket without ends: %+v", s)
		}
		_, _ = parseConnection(s)
		_, _, _, _ = parseSubflow(s)
	})
}

// TurnOn and TurnOff on sysctls of both kinds of kernel, through a crash, and when somebody else changes the setting.
func TestTurnOnAndOff(t *testing.T) {
	for file, c := range map[string]struct{ before, on, other string }{
		"pm_type":      {"0", "1", "0"},
		"path_manager": {"kernel", "userspace", "mine_in_bpf"},
	} {
		t.Run(file, func(t *testing.T) {
			dir := t.TempDir()
			saved, path := filepath.Join(dir, "saved"), filepath.Join(dir, file)
			set := func(v string) {
				if err := os.WriteFile(path, []byte(v+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			step := func(what string, err error, want string) {
				t.Helper()
				b, _ := os.ReadFile(path)
				if got := strings.TrimSpace(string(b)); err != nil || got != want {
					t.Errorf("%s: %q, %v, want %q", what, got, err, want)
				}
			}
			set(c.before)
			step("off before on", turnOff(dir, saved), c.before)
			step("on", turnOn(dir, saved), c.on)
			step("on again, after a crash", turnOn(dir, saved), c.on)
			step("off", turnOff(dir, saved), c.before)
			step("off again", turnOff(dir, saved), c.before)
			step("on", turnOn(dir, saved), c.on)
			set(c.other)
			step("off after somebody else", turnOff(dir, saved), c.other)
			set(c.on)
			step("on where it was on", turnOn(dir, saved), c.on)
			step("off where it was on", turnOff(dir, saved), c.on)
			if _, err := os.Stat(saved); err == nil {
				t.Error("the saved file is still there")
			}
			set(c.before)
			if err := os.Mkdir(saved+".new", 0o700); err != nil {
				t.Fatal(err)
			}
			if err := turnOn(dir, saved); err == nil {
				t.Error("it was turned on though what was before could not be saved")
			}
			if _, err := os.Stat(saved); err == nil {
				t.Error("what could not be written stands for what was saved")
			}
			step("after that", nil, c.before)
		})
	}
	if err := turnOn(t.TempDir(), "saved"); err == nil || !strings.Contains(err.Error(), "5.19") {
		t.Errorf("without MPTCP: %v, want the version that has it", err)
	}
}

// What Probe says about kernels other than this one.
func TestProbeSysctls(t *testing.T) {
	dir := t.TempDir()
	write := func(file, value string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(text string) {
		t.Helper()
		lacks := probeSysctls(dir)
		if text == "" && len(lacks) == 0 {
			return
		}
		if len(lacks) != 1 || text == "" || !strings.Contains(lacks[0].What, text) || lacks[0].Do == "" {
			t.Errorf("got %+v, want one about %q", lacks, text)
		}
	}
	expect("no MPTCP")
	write("enabled", "0\n")
	expect("switched off")
	write("enabled", "1\n")
	expect("pm_type")
	write("pm_type", "0\n")
	expect("")
}

package bgp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/internal/rung"
)

func TestAOLayout(t *testing.T) {
	t.Parallel()
	// by offsetof of linux/tcp.h, Linux 7.2
	var add aoAdd
	var info aoOptions
	for name, c := range map[string][2]uintptr{
		"tcp_ao_add": {unsafe.Sizeof(add), 288}, "alg_name": {unsafe.Offsetof(add.algorithm), 128}, "set_current": {unsafe.Offsetof(add.set), 196},
		"prefix": {unsafe.Offsetof(add.prefix), 202}, "keylen": {unsafe.Offsetof(add.length), 207}, "key": {unsafe.Offsetof(add.key), 208},
		"tcp_ao_info_opt": {unsafe.Sizeof(info), 48}, "current_key": {unsafe.Offsetof(info.current), 6}, "pkt_good": {unsafe.Offsetof(info.counters), 8},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, want %d", name, c[0], c[1])
		}
	}
}

// socketOf a listener or connection.
func socketOf(t *testing.T, s syscall.Conn) syscall.RawConn {
	t.Helper()
	raw, err := s.SyscallConn()
	must(t, err)
	return raw
}

// Without TCP-AO in the kernel there is no session, and the operator hears what to do.
func TestAOMissing(t *testing.T) {
	t.Parallel()
	if HasAO() {
		return
	}
	r := newReflector(t, "127.0.0.1:0")
	c := config(r)
	c.Reflectors[0].AOKeys = []AOKey{{Key: "secret", Algorithm: HMACSHA1}}
	w := watch(t, c)
	w.until("words about the kernel", func() bool {
		return strings.Contains(w.lastError(), "this kernel has no TCP-AO: use Linux 6.7 or newer")
	})
	must(t, r.listener.(*net.TCPListener).SetDeadline(time.Now().Add(100*time.Millisecond)))
	if conn, err := r.listener.Accept(); err == nil {
		_ = conn.Close()
		t.Error("the speaker connected without TCP-AO")
	}
}

// the other side of a key.
func (k AOKey) other() AOKey {
	k.SendID, k.ReceiveID = k.ReceiveID, k.SendID
	return k
}

// What fits comes up. What does not has no connection, and the operator hears what was tried.
func TestAO(t *testing.T) {
	t.Parallel()
	if !HasAO() {
		t.Skip("this kernel has no TCP-AO (CONFIG_TCP_AO); TestAOInGuest runs this on one that has")
	}
	key := AOKey{Key: "secret", SendID: 0, ReceiveID: 255, Algorithm: HMACSHA1}
	second := AOKey{Key: strings.Repeat("s", 80), SendID: 7, ReceiveID: 7, Algorithm: AES128CMAC}
	with := func(change func(*AOKey)) []AOKey {
		k := key
		change(&k)
		return []AOKey{k}
	}
	for name, c := range map[string]struct {
		address     string
		has         []AOKey // the reflector
		hasPassword string
		keys        []AOKey // the speaker
		password    string
		want        string // of the error; empty: it works
	}{
		"the same": {has: []AOKey{key}, keys: []AOKey{key}}, "the same, IPv6": {address: "::1", has: []AOKey{key}, keys: []AOKey{key}},
		"AES":                         {has: []AOKey{second}, keys: []AOKey{second}},
		"two keys":                    {has: []AOKey{second, key}, keys: []AOKey{key, second}},
		"the reflector has dropped 1": {has: []AOKey{second}, keys: []AOKey{key, second}},
		"the reflector has 1 alone":   {has: []AOKey{key}, keys: []AOKey{key, second}},
		"another key":                 {has: []AOKey{key}, keys: with(func(k *AOKey) { k.Key = "Secret" }), want: "TCP-AO key that was tried, hmac-sha-1-96, with receive ID 0 and send ID 255"},
		"another send ID":             {has: []AOKey{key}, keys: with(func(k *AOKey) { k.SendID = 1 }), want: "with receive ID 1 and send ID 255"},
		"another receive ID":          {has: []AOKey{key}, keys: with(func(k *AOKey) { k.ReceiveID = 1 }), want: "with receive ID 0 and send ID 1"},
		"another algorithm":           {has: []AOKey{key}, keys: with(func(k *AOKey) { k.Algorithm = AES128CMAC }), want: "TCP-AO key that was tried, aes-128-cmac-96"},
		"the reflector has none":      {keys: []AOKey{key}, want: "TCP-AO key"},
		"the reflector has TCP-MD5":   {hasPassword: "secret", keys: []AOKey{key}, want: "TCP-AO key"},
		"the speaker has TCP-MD5":     {has: []AOKey{key}, password: "secret", want: "TCP-MD5 password"},
		"the speaker has none":        {has: []AOKey{key}, want: "no answer in"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.address == "" {
				c.address = "127.0.0.1"
			}
			at := netip.MustParseAddr(c.address)
			r := newReflector(t, net.JoinHostPort(c.address, "0"))
			raw := socketOf(t, r.listener.(*net.TCPListener))
			for _, k := range c.has {
				must(t, addKey(raw, at, k.other(), 0))
			}
			if c.hasPassword != "" {
				must(t, setPassword(raw, at, c.hasPassword))
			}
			cfg := config(r)
			cfg.Reflectors[0].AOKeys, cfg.Reflectors[0].Password, cfg.Reflectors[0].DialTime = c.keys, c.password, time.Second
			w := watch(t, cfg)
			if c.want == "" {
				r.greet()
				w.event("up", 1)
				return
			}
			w.until("words about the key", func() bool { return strings.Contains(w.lastError(), c.want) })
			must(t, r.listener.(*net.TCPListener).SetDeadline(time.Now().Add(20*time.Millisecond)))
			if conn, err := r.listener.Accept(); err == nil {
				_ = conn.Close()
				t.Error("there is a connection")
			}
		})
	}
}

// A session without hold time asks for the key as often as one with the hold time of the configuration, and sends no keepalives (RFC 4271 section 4.4).
func TestAOWithoutHoldTime(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	conn, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	other, err := listener.Accept()
	must(t, err)
	var asked atomic.Int32
	log := slog.New(slog.NewTextHandler(writer(func(line []byte) {
		if strings.Contains(string(line), "TCP-AO keys do not change") { // this connection has none
			asked.Add(1)
		}
	}), nil))
	s := newSession(&Speaker{config: Config{Log: log}}, Reflector{HoldTime: 30 * time.Millisecond, AOKeys: []AOKey{{Key: "secret", Algorithm: HMACSHA1}}})
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	sending.Go(func() { s.runKeepalives(ctx, newPeer(conn), &agreement{}) })
	for end := time.Now().Add(patience); asked.Load() < 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	cancel()
	sending.Wait()
	if n := asked.Load(); n < 2 {
		t.Errorf("the key was asked for %d times", n)
	}
	must(t, conn.Close())
	if sent, err := io.ReadAll(other); err != nil || len(sent) > 0 {
		t.Errorf("sent was %x, error %v", sent, err)
	}
	must(t, errors.Join(other.Close(), listener.Close()))
}

// writer is what a log is written to, a line at a time.
type writer func([]byte)

func (w writer) Write(line []byte) (int, error) {
	w(line)
	return len(line), nil
}

// The reflector changes its key while the session is up. Both directions change, and the next session begins with the new key.
func TestAORollover(t *testing.T) {
	t.Parallel()
	if !HasAO() {
		t.Skip("this kernel has no TCP-AO (CONFIG_TCP_AO); TestAOInGuest runs this on one that has")
	}
	for name, hold := range map[string]uint16{"hold time 3 s": 3, "no hold time": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rollover(t, hold)
		})
	}
}

func rollover(t *testing.T, hold uint16) {
	t.Helper()
	at := netip.MustParseAddr("127.0.0.1")
	keys := []AOKey{{Key: "this year's", SendID: 1, ReceiveID: 101, Algorithm: HMACSHA1}, {Key: "next year's", SendID: 2, ReceiveID: 102, Algorithm: AES128CMAC}}
	r := newReflector(t, "127.0.0.1:0")
	r.hold = hold
	listener := socketOf(t, r.listener.(*net.TCPListener))
	for _, k := range keys {
		must(t, addKey(listener, at, k.other(), 0))
	}
	c := config(r)
	c.Reflectors[0].AOKeys, c.Reflectors[0].HoldTime = keys, 3*time.Second
	w := watch(t, c)
	r.greet()
	shows := func(ids string) func() bool {
		return func() bool {
			return strings.Contains(strings.Join(w.speaker.Sessions()[0].Agreed, "; "), "TCP-AO: "+ids)
		}
	}
	w.event("up", 1)
	w.until("the first key", shows("send ID 1, receive ID 101"))
	ended, alive := make(chan struct{}), sync.WaitGroup{}
	alive.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(500 * time.Millisecond):
				r.say(wire.NewBGPKeepAliveMessage())
			}
		}
	})
	stop := sync.OnceFunc(func() { close(ended); alive.Wait() })
	defer stop()

	conn := socketOf(t, r.conn.(*net.TCPConn))
	must(t, setOption(conn, tcpAOInfo, &aoOptions{set: aoSetNext, next: 2}))
	w.until("the second key", shows("send ID 2, receive ID 102"))
	w.until("the reflector signs with it too", func() bool {
		var got *syscall.IPMreq
		var err error
		must(t, conn.Control(func(fd uintptr) { got, err = syscall.GetsockoptIPMreq(int(fd), syscall.IPPROTO_TCP, tcpAOInfo) }))
		must(t, err)
		return got.Interface[2] == 102
	})
	w.event("down", 0)

	stop()
	must(t, r.conn.Close())
	w.event("down", 1)
	r.greet()
	w.event("up", 2)
	if !shows("send ID 2, receive ID 102")() {
		t.Errorf("the next session: %v", w.speaker.Sessions()[0].Agreed)
	}
}

// The tests above in the lab's machine of the kernel that has TCP-AO.
func TestAOInGuest(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	files = slices.DeleteFunc(files, func(f string) bool { return f == "gobgp_test.go" || f == "bench_test.go" }) // gobgp's server would make it three times as large
	rung.Guest(t, "7.2", "./tests -test.v -test.run '^TestAO(|Layout|Missing|Rollover|WithoutHoldTime)$'", files...)
}

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"plait.dev/plait/stripe/ssh"
	"plait.dev/plait/stripe/ssh/sshtest"
)

// The test binary is also ssh and the far side.
func TestMain(m *testing.M) {
	sshtest.Main(m, func() ssh.Handler {
		return ssh.Handler{Many: Serve}
	})
}

// Two proxies cannot have one port; the second says how to give it another.
func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Run(t.Context(), "host", l.Addr().String(), ssh.Options{}, func(string) {}, nil); err == nil || !strings.HasSuffix(err.Error(), "; choose another address or port with --at") {
		t.Errorf("got %v, want what to do", err)
	}
}

// A proxy that other hosts reach lets them to all that the far side reaches: who has made it so hears that.
func TestOpenToOthersIsTold(t *testing.T) {
	for at, open := range map[string]bool{"127.0.0.1": false, "::1": false, "::": true, "192.0.2.1": true} {
		if got := ready(&net.TCPAddr{IP: net.ParseIP(at), Port: 1080}); strings.Contains(got, "other hosts") != open || !strings.HasSuffix(got, ":1080") {
			t.Errorf("at %s: %s", at, got)
		}
	}
}

func TestProgramsGoThrough(t *testing.T) {
	body := strings.Repeat("over every link ", 100000)
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, io.MultiReader(r.Body, strings.NewReader(body)))
	}))
	defer web.Close()
	at, end := start(t)
	for _, scheme := range []string{"socks5h", "http"} {
		transport := web.Client().Transport.(*http.Transport).Clone()
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: scheme, Host: at})
		for range 3 {
			answer, err := (&http.Client{Transport: transport}).Post(web.URL, "text/plain", strings.NewReader("sent;"))
			if err != nil {
				t.Fatalf("%s: %v", scheme, err)
			}
			got, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if string(got) != "sent;"+body || err != nil {
				t.Errorf("%s: %d bytes, %v", scheme, len(got), err)
			}
			transport.CloseIdleConnections()
		}
	}
	nobody, err := proxy.SOCKS5("tcp", at, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := nobody.Dial("tcp", "127.0.0.1:1"); err == nil {
		c.Close()
		t.Error("a port where nobody listens is reached")
	}
	end()
}

// start runs the proxy, at an address, until end.
func start(t *testing.T) (at string, end func()) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan string, 1)
	say := func(line string) {
		select {
		case said <- line:
		default: // the first one is all there is to know
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, "host", "127.0.0.1:0", ssh.Options{Command: []string{self}}, say, nil) }()
	line := <-said
	at = line[strings.LastIndex(line, " ")+1:]
	return at, sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			t.Log(err)
		case <-time.After(30 * time.Second):
			t.Error("does not end")
		}
	})
}

// proxied starts a proxy, and a server that is to be reached through it.
func proxied(t *testing.T) (through proxy.Dialer, l net.Listener) {
	at, end := start(t)
	t.Cleanup(end)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if through, err = proxy.SOCKS5("tcp", at, nil, nil); err != nil {
		t.Fatal(err)
	}
	return through, l
}

// A program may send without waiting for the proxy's answer, as one does that saves a round trip.
func TestSentAtOnce(t *testing.T) {
	at, end := start(t)
	defer end()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	program, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	sent := strings.Repeat("more", askBytes) // more than a request may have
	go func() {
		_, _ = io.WriteString(program, "CONNECT "+l.Addr().String()+" HTTP/1.1\r\nHost: x\r\n\r\n"+sent)
		_ = program.(*net.TCPConn).CloseWrite()
	}()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if got, err := io.ReadAll(server); string(got) != sent || err != nil {
		t.Errorf("%d bytes arrived, %v; want the %d that were sent", len(got), err, len(sent))
	}
}

// What is cut off by a reset must not look whole to a program that goes by the end of the stream.
func TestResetIsNoEnd(t *testing.T) {
	t.Parallel()
	through, l := proxied(t)
	for _, reset := range []string{"program", "target"} {
		program, err := through.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		target, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		from, to := program, target
		if reset == "target" {
			from, to = target, program
		}
		_, _ = io.WriteString(from, "half")
		half := make([]byte, 4)
		if _, err := io.ReadFull(to, half); string(half) != "half" { // a reset would overtake it
			t.Fatalf("before %s resets: %q, %v", reset, half, err)
		}
		_ = from.(interface{ SetLinger(int) error }).SetLinger(0)
		from.Close()
		if got, err := io.ReadAll(to); len(got) > 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s resets: %q, %v; want a reset", reset, got, err)
		}
		to.Close()
	}
}

// With as many programs as there may be, and one that waits, the proxy ends when it is told to.
func TestEndsWhenFull(t *testing.T) {
	t.Parallel()
	at, end := start(t)
	var programs []net.Conn
	for range maxPrograms + 1 {
		program, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		_, _ = program.Write([]byte{socks5, 1, socksNoAuth})
		programs = append(programs, program)
	}
	for i, program := range programs[:maxPrograms] { // the last one is not heard
		if _, err := io.ReadFull(program, make([]byte, 2)); err != nil {
			t.Fatalf("program %d of %d: %v", i, maxPrograms, err)
		}
	}
	end()
}

// A connection that has ended leaves nothing behind, nor does one whose program gives up before the proxy's answer: a proxy carries very many before it ends.
func TestEndedConnectionsLeaveNothing(t *testing.T) {
	at, end := start(t)
	defer end()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c); c.Close() }()
		}
	}()
	for name, patient := range map[string]bool{"ended": true, "given up": false} {
		before := runtime.NumGoroutine()
		const conns = 40
		for range conns {
			c, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, "CONNECT "+l.Addr().String()+" HTTP/1.1\r\nHost: x\r\n\r\n")
			if patient {
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
			} else {
				time.Sleep(time.Millisecond) // for the request to be read
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			c.Close()
		}
		for wait := 0; runtime.NumGoroutine() > before+conns/2; wait++ {
			if wait == 100 {
				t.Fatalf("%s: %d goroutines, %d before %d connections", name, runtime.NumGoroutine(), before, conns)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func TestAsked(t *testing.T) {
	for in, want := range map[string]string{
		"\x05\x01\x00\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50":                                "10.0.0.1:80",
		"\x05\x02\x02\x00\x05\x01\x00\x03\x04name\x01\xbb":                                    "name:443",
		"\x05\xff" + strings.Repeat("\x00", 255) + "\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50": "10.0.0.1:80",
		"\x05\x01\x02": "",
		"\x05\x01\x00\x05\x02\x00\x01\x0a\x00\x00\x01\x00\x50": "", // BIND
		"\x05\x01\x00\x05\x01\x00\x09\x0a":                     "",
		"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n":  "example.org:443",
		"GET http://example.org/ HTTP/1.1\r\nHost: x\r\n\r\n":  "",
		"CONNECT / HTTP/1.1\r\n\r\n":                           "",
		"\x04":                                                 "",
		"":                                                     "",
	} {
		target, _, err := asked(bufio.NewReader(strings.NewReader(in)), io.Discard)
		if target != want || (err == nil) != (want != "") {
			t.Errorf("%q asks for %q, %v; want %q", in, target, err, want)
		}
	}
}

// What cannot be done is answered with why, by the codes of RFC 1928, section 6.
func TestRefusedSOCKS(t *testing.T) {
	for in, want := range map[string]byte{
		"\x05\x01\x00\x05\x02\x00\x01\x0a\x00\x00\x01\x00\x50": socksRefused,
		"\x05\x01\x00\x05\x01\x00\x09\x0a":                     socksNoAddress,
	} {
		var out bytes.Buffer
		_, _, err := asked(bufio.NewReader(strings.NewReader(in)), &out)
		if got := out.Bytes(); err == nil || len(got) != 12 || got[3] != want {
			t.Errorf("%q is answered with %x, %v; want code %d", in, got, err, want)
		}
	}
}

func TestRefusedHTTP(t *testing.T) {
	for in, want := range map[string]string{
		"GET http://example.org/ HTTP/1.1\r\nHost: x\r\n\r\n": "HTTP/1.1 405 Method Not Allowed\r\n",
		"CONNECT example.org:443\r\n\r\n":                     "HTTP/1.1 400 Bad Request\r\n",
	} {
		var out bytes.Buffer
		if _, _, err := asked(bufio.NewReader(strings.NewReader(in)), &out); err == nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%q is answered with %q, %v; want %q", in, out.String(), err, want)
		}
	}
}

func FuzzAsked(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x04name\x01\xbb"))
	f.Add([]byte("CONNECT a:1 HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if target, answer, err := asked(bufio.NewReader(bytes.NewReader(b)), io.Discard); err == nil && answer(nil) != nil {
			t.Error(target)
		}
	})
}

// A program that speaks something else hears so at once, while it waits for an answer itself and would not say more.
func TestOtherProtocols(t *testing.T) {
	for in, want := range map[string]struct{ says, answer string }{
		"\x04\x01\x01\xbb\xc0\x00\x02\x01\x00": {"SOCKS4", "\x00\x5b\x00\x00\x00\x00\x00\x00"},
		"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0": {"neither SOCKS5 nor HTTP", ""}, // TLS
	} {
		near, far := net.Pipe()
		var out bytes.Buffer
		ended := make(chan error, 1)
		go func() {
			_, _, err := asked(bufio.NewReader(far), &out)
			ended <- err
		}()
		if _, err := near.Write([]byte(in)); err != nil {
			t.Fatal(err)
		}
		hung := time.AfterFunc(5*time.Second, func() { near.Close() })
		if err := <-ended; !hung.Stop() || err == nil || !strings.Contains(err.Error(), want.says) || out.String() != want.answer {
			t.Errorf("%q: answered %q, %v", in, out.String(), err)
		}
		near.Close()
		far.Close()
	}
}

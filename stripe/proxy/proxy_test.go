package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
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

func TestProgramsGoThrough(t *testing.T) {
	body := strings.Repeat("over every link ", 100000)
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, io.MultiReader(r.Body, strings.NewReader(body)))
	}))
	defer web.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	said, log := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, "host", "127.0.0.1:0", ssh.Options{Command: []string{self}}, log, nil) }()
	lines := bufio.NewScanner(said)
	lines.Scan()
	at := lines.Text()[strings.LastIndex(lines.Text(), " ")+1:]
	go func() {
		for lines.Scan() {
			t.Log(lines.Text())
		}
	}()
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
	cancel()
	select {
	case err := <-ended:
		t.Log(err)
	case <-time.After(10 * time.Second):
		t.Error("does not end")
	}
}

func TestAsked(t *testing.T) {
	for in, want := range map[string]string{
		"\x05\x01\x00\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50":                                "10.0.0.1:80",
		"\x05\x02\x02\x00\x05\x01\x00\x03\x04name\x01\xbb":                                    "name:443",
		"\x05\xff" + strings.Repeat("\x00", 255) + "\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50": "10.0.0.1:80",
		"\x05\x01\x02": "",
		"\x05\x01\x00\x05\x02\x00\x01\x0a\x00\x00\x01\x00\x50":    "", // BIND
		"\x05\x01\x00\x05\x01\x00\x09\x0a":                        "",
		"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n":     "example.org:443",
		"GET http://example.org/ HTTP/1.1\r\nHost: x\r\n\r\n":     "",
		"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\nmore": "",
		"\x04": "",
		"":     "",
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

func FuzzAsked(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x04name\x01\xbb"))
	f.Add([]byte("CONNECT a:1 HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if target, answer, err := asked(bufio.NewReader(bytes.NewReader(b)), io.Discard); err == nil && answer(nil) != nil {
			t.Error(target)
		}
	})
}

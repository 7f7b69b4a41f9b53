package stripe

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
)

// BenchmarkLoopback is one path; BenchmarkPlainTLS is the same without stripe, to compare.
func BenchmarkLoopback(b *testing.B) {
	for _, over := range carriersHere() {
		b.Run(string(over), func(b *testing.B) {
			near, far := both(b, over)
			pour(b, near, far)
		})
	}
}

func BenchmarkPlainTLS(b *testing.B) {
	x, y := NewKey(), NewKey()
	client, err := tlsConfig(&Config{Key: x, Peers: []PublicKey{y.Public()}})
	if err != nil {
		b.Fatal(err)
	}
	server, err := tlsConfig(&Config{Key: y, Peers: []PublicKey{x.Public()}})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	pour(b, tls.Client(near, client), tls.Server(far, server))
}

// pour writes at one end and reads at the other as fast as it goes.
func pour(b *testing.B, near, far net.Conn) {
	done := make(chan struct{})
	go func() {
		_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{far}, make([]byte, 256<<10))
		close(done)
	}()
	data := noise(1<<20, 1)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := near.Write(data); err != nil {
			b.Fatal(err)
		}
	}
	near.Close()
	<-done
}

package cp

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/lab/netns"
)

// BenchmarkHostCopy copies 1 GB from namespace to namespace, over two links without a limit: rate, CPU of both sides together, which other work
// on the host disturbs less, and the memory of the larger one. Beside plait: one TLS connection over one link with nothing else around it,
// aria2 over both links, without encryption, and scp over one. None of them computes sums. Each finds pages that a file of that size has just left:
// memory that a virtual machine has not used of late is its hypervisor's to bring back, and whoever came first would pay for the others.
func BenchmarkHostCopy(b *testing.B) {
	h := newHosts(b, "")
	dir := b.TempDir()
	const n = 1 << 30
	from, to := filepath.Join(dir, "file"), filepath.Join(dir, "copy")
	random(b, from, n)
	for _, c := range []struct {
		name string
		copy func(b *testing.B) (cpu time.Duration, kb int64)
	}{
		{"plait", func(b *testing.B) (time.Duration, int64) {
			_, state := h.copy(from, "host:"+to)
			return state.UserTime() + state.SystemTime(), state.SysUsage().(*syscall.Rusage).Maxrss
		}},
		{"tls", func(b *testing.B) (time.Duration, int64) { return own(b, func() error { return h.tls(from, to) }), 0 }},
		{"aria2", func(b *testing.B) (time.Duration, int64) { return h.aria2(b, dir, "file", "copy") }},
		{"scp", func(b *testing.B) (time.Duration, int64) { return h.scp(b, dir, from, to) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(n)
			cpu, kb := time.Duration(0), int64(0)
			for b.Loop() {
				b.StopTimer()
				random(b, to, n)
				if err := os.Remove(to); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				took, held := c.copy(b)
				cpu += took
				kb = max(kb, held)
			}
			b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-s/op")
			if kb > 0 {
				b.ReportMetric(float64(kb)/1024, "MB-of-memory")
			}
		})
	}
}

// own is the CPU time this process takes for f.
func own(b *testing.B, f func() error) time.Duration {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return used() - before
}

// listen listens at the near host.
func (h *hosts) listen() (l net.Listener, err error) {
	err = netns.Do(h.near, func() error { l, err = net.Listen("tcp", ":0"); return err })
	return l, err
}

// tls sends a file over one connection.
func (h *hosts) tls(from, to string) error {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return err
	}
	l, err := h.listen()
	if err != nil {
		return err
	}
	defer l.Close()
	sent := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			sent <- err
			return
		}
		c := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, DynamicRecordSizingDisabled: true})
		sent <- errors.Join(pour(c, from), c.Close())
	}()
	var conn net.Conn
	_, port, _ := net.SplitHostPort(l.Addr().String())
	err = netns.Do(h.far, func() error { conn, err = net.Dial("tcp", "10.79.0.1:"+port); return err })
	if err != nil {
		return err
	}
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // a comparison of speed
	defer c.Close()
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{c}, make([]byte, dataBytes))
	return errors.Join(err, f.Close(), <-sent)
}

// pour writes a file.
func pour(to io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{f}, make([]byte, dataBytes))
	return err
}

// aria2 fetches a file by HTTP over both links.
func (h *hosts) aria2(b *testing.B, dir, from, to string) (cpu time.Duration, kb int64) {
	b.Helper()
	program, err := exec.LookPath("aria2c")
	if err != nil {
		b.Skip("there is no aria2c; scripts/bootstrap bench installs it")
	}
	l, err := h.listen()
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(dir))}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	cmd := exec.Command(program, "-q", "-x", "2", "-s", "2", "--file-allocation=none", "-d", dir, "-o", to, "http://10.79.0.1:"+port+"/"+from, "http://10.79.1.1:"+port+"/"+from)
	cpu = own(b, func() error {
		if err := netns.Start(h.far, cmd); err != nil {
			return err
		}
		return cmd.Wait()
	})
	state := cmd.ProcessState
	return cpu + state.UserTime() + state.SystemTime(), state.SysUsage().(*syscall.Rusage).Maxrss
}

package daemon

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// controlled stands in for a daemon.
type controlled struct {
	status  Status
	refusal error
	reloads int
	begun   chan struct{} // a reload waits until it is closed, if it is there
	stopped chan struct{}
}

func (c *controlled) Status() Status { return c.status }
func (c *controlled) Why(socket string) (SocketStatus, error) {
	return c.status.FindSocket(socket)
}
func (c *controlled) Reload() error {
	if c.begun != nil {
		<-c.begun
	}
	c.reloads++
	return c.refusal
}
func (c *controlled) Stop() { close(c.stopped) }

// start serves c on a socket in a new directory until the test ends.
func start(t *testing.T, c Controlled) (path string, stop func() error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "plait") // t.TempDir's names may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "run", "control")
	held, err := lock(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- serve(ctx, l, handler(c), 0) }()
	answers(t, path)
	return path, func() error { cancel(); return <-ended }
}

// answers waits until somebody does.
func answers(t *testing.T, path string) {
	t.Helper()
	var err error
	for range 1000 {
		if _, err = Client(path).Status(); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("nobody answers on %s: %v", path, err)
}

func TestControl(t *testing.T) {
	c := &controlled{status: Status{
		Version: "1.2.3", PID: 7, UpSince: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Mode: On, Counters: map[string]uint64{"attached": 3},
		Sockets: []SocketStatus{connection(0x1a, "192.0.2.1:443", "198.51.100.7:50000")},
	}}
	path, stop := start(t, c)
	client := Client(path)
	if s, err := client.Status(); err != nil || !reflect.DeepEqual(s, c.status) {
		t.Errorf("status: got %+v, %v, want %+v", s, err, c.status)
	}
	if s, err := client.Why("sk:1a"); err != nil || !reflect.DeepEqual(s, c.status.Sockets[0]) {
		t.Errorf("why: got %+v, %v", s, err)
	}
	if _, err := client.Why("sk:ff"); !errors.Is(err, ErrNoSocket) || !strings.HasPrefix(err.Error(), "find socket sk:ff: no such connection") {
		t.Errorf("why of a socket that is not there: %v", err)
	}
	if _, err := client.Why("a&b=c d"); err == nil || errors.Is(err, ErrNoSocket) {
		t.Errorf("why of no socket: %v", err)
	}
	if err := client.Reload(); err != nil || c.reloads != 1 {
		t.Errorf("reload: %v, %d times, want once", err, c.reloads)
	}
	c.refusal = errors.New("plait.yaml:1:1: colour: unknown key\nplait.yaml:2:1: sound: unknown key")
	if err := client.Reload(); err == nil || err.Error() != c.refusal.Error() {
		t.Errorf("reload with mistakes: got %v, want %v", err, c.refusal)
	}
	if err := client.Reload(); errors.Is(err, ErrFailed) {
		t.Error("a mistake in the configuration is said to be the daemon's failure")
	}
	c.refusal = &failing{errors.New("the kernel refuses")}
	if err := client.Reload(); !errors.Is(err, ErrFailed) || err.Error() != "the kernel refuses" {
		t.Errorf("reload that the kernel refuses: got %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// The socket is for root alone.
func TestControlPermissions(t *testing.T) {
	path, stop := start(t, &controlled{})
	defer func() { _ = stop() }()
	for file, want := range map[string]os.FileMode{path: os.ModeSocket | 0o600, filepath.Dir(path): os.ModeDir | 0o755} {
		if info, err := os.Lstat(file); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", file, info.Mode(), err, want)
		}
	}
}

// One daemon at a path; what a dead one left is no obstacle, a file that is not plait's is one.
func TestControlTaken(t *testing.T) {
	path, stop := start(t, &controlled{})
	want := "listen on " + path + ": another plait answers there; stop it with plait down"
	if _, err := listen(path); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as when a process is killed
	l.Close()
	if _, err := Client(path).Status(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a dead daemon's socket: %v, want that plait is not up", err)
	}
	again, err := listen(path)
	if err != nil {
		t.Fatalf("a dead daemon's socket is in the way: %v", err)
	}
	again.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "a file is there that is no socket") {
		t.Errorf("got %v, want that the file is no socket", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "precious" {
		t.Error("the file was removed")
	}
}

// Of plaits that come up at the same moment one does, and can be reached; the others say why not.
func TestControlRace(t *testing.T) {
	dir, err := os.MkdirTemp("", "plait")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "control")
	const plaits = 8
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, plaits)
		for i := range plaits {
			go func() { ended <- Serve(ctx, path, &controlled{status: Status{PID: i}}) }()
		}
		for range plaits - 1 {
			select {
			case err := <-ended:
				if err == nil || !strings.Contains(err.Error(), "another plait is up") {
					t.Errorf("got %v, want that another plait is up", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("more than one is up")
			}
		}
		answers(t, path)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			return
		}
	}
}

// A client that has waited too long does not say that it failed.
func TestNoAnswer(t *testing.T) {
	c := &controlled{begun: make(chan struct{})}
	path, stop := start(t, c)
	client := Client(path)
	client.http.Timeout = time.Second // for what is asked to reach the daemon
	want := "ask for reload on " + path + ": no answer within 1s: plait is busy or hangs, and may still do what it was asked for; see its log, and plait status"
	if err := client.Reload(); !errors.Is(err, ErrNoAnswer) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	close(c.begun)
	if err := stop(); err != nil || c.reloads != 1 {
		t.Errorf("%v, %d reloads, want the one that was asked for", err, c.reloads)
	}
}

// A daemon that ends before it has answered: what was asked for was no mistake.
func TestAnswerCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
		}
	}()
	if err := Client(path).Reload(); !errors.Is(err, ErrNoAnswer) || !strings.HasSuffix(err.Error(), "plait may have ended meanwhile: see its log") {
		t.Errorf("got %v, want that there was no answer", err)
	}
}

// An answer that cannot be written as JSON is no answer that was cut off, nor one of another version.
func TestAnswerUnwritable(t *testing.T) {
	c := &controlled{}
	path, stop := start(t, c)
	defer func() { _ = stop() }()
	c.status.HoldoutPercent = math.NaN()
	_, err := Client(path).Status()
	if want := "write the answer: json: unsupported value: NaN"; !errors.Is(err, ErrFailed) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// A daemon of another version does not know what it is asked for: that is neither bad input nor a connection that is not there.
func TestOtherVersion(t *testing.T) {
	path, stop := start(t, &controlled{})
	defer func() { _ = stop() }()
	_, err := Client(path).EgressLog() // of which this stand-in knows nothing
	want := "ask for egress/log on " + path + ": the plait that is up does not know what that is (404 page not found): it is older or newer than this command; " +
		"plait down and plait up, or systemctl restart plait, replace it"
	if !errors.Is(err, ErrFailed) || errors.Is(err, ErrNoSocket) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestNotRunning(t *testing.T) {
	want := "ask for status on /nonexistent/control: plait is not up; start it with `plait up`"
	if _, err := Client("/nonexistent/control").Status(); !errors.Is(err, ErrNotRunning) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Stop waits for the daemon's process, also for one that nobody has waited for.
func TestStop(t *testing.T) {
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { // not before the end: until then it is a zombie
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	}()
	c := &controlled{status: Status{PID: sleep.Process.Pid, Default: "cubic"}, stopped: make(chan struct{})}
	path, stop := start(t, c)
	defer func() { _ = stop() }()
	if gone(c.status.PID) {
		t.Error("a sleeping process is said to be gone")
	}
	var killed atomic.Bool
	go func() {
		<-c.stopped
		time.Sleep(50 * time.Millisecond)
		killed.Store(true)
		_ = sleep.Process.Kill()
	}()
	last, err := Client(path).Stop(t.Context())
	if err != nil || last.Default != "cubic" || !killed.Load() {
		t.Errorf("got %+v, %v, killed %v, want the last status after the process's end", last, err, killed.Load())
	}
}

func TestStopTakesTooLong(t *testing.T) {
	c := &controlled{status: Status{PID: os.Getpid()}, stopped: make(chan struct{})}
	path, stop := start(t, c)
	defer func() { _ = stop() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no patience"))
	if _, err := Client(path).Stop(ctx); err == nil || !strings.Contains(err.Error(), "is gone: no patience; its log says what it does") {
		t.Errorf("got %v", err)
	}
}

package pipe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/ssh"
	"plait.dev/plait/stripe/ssh/sshtest"
)

// The test binary is also ssh and the far side.
func TestMain(m *testing.M) {
	sshtest.Main(m, func() ssh.Handler {
		return ssh.Handler{One: func(c *stripe.Conn, run string, _ []byte) error { return Serve(c, run) }}
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("0123456789", 300000)
	for _, c := range []struct {
		command, in, out string
		status           int
	}{
		{"cat", big, big, 0},
		{"echo out; exit 7", big, "out\n", 7},
		{"tr a-z A-Z", "through\n", "THROUGH\n", 0},
		{"printf caf\xe9", "", "caf\xe9", 0}, // in Latin-1
		{"kill -9 $$", "", "", statusUnknown},
		{"no-such-command 2>/dev/null", "", "", 127},
		{"exec 0<&-; sleep 0.3; echo goes on; exit 3", big, "goes on\n", 3},
	} {
		var out bytes.Buffer
		status, err := Run(t.Context(), "host", c.command, strings.NewReader(c.in), &out, io.Discard, ssh.Options{Command: []string{self}}, nil)
		if err != nil || status != c.status || out.String() != c.out {
			t.Errorf("%s: status %d, %d bytes, %v; want %d, %d bytes", c.command, status, out.Len(), err, c.status, len(c.out))
		}
	}
}

// An input that cannot be read ends the command, which would wait for it.
func TestInputFails(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = Run(ctx, "host", "cat", dir, io.Discard, io.Discard, ssh.Options{Command: []string{self}}, nil)
	if !errors.Is(err, syscall.EISDIR) {
		t.Errorf("%v; want that a directory cannot be read", err)
	}
}

// begun waits until a command has written what it says of itself.
func begun(t *testing.T, file string) string {
	t.Helper()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		late := time.Since(start) > 30*time.Second
		if text, err := os.ReadFile(file); err == nil && strings.HasSuffix(string(text), "\n") {
			return strings.TrimSpace(string(text))
		}
		if late {
			t.Fatalf("%s is not written", filepath.Base(file))
		}
	}
}

// isKilled waits for the end of the process that a file names.
func isKilled(t *testing.T, file string) {
	t.Helper()
	pid := begun(t, file)
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		late := time.Since(start) > 30*time.Second
		if command, _ := os.ReadFile("/proc/" + pid + "/cmdline"); len(command) == 0 { // nor has one that nobody has waited for yet
			return
		}
		if late {
			t.Error("the command goes on")
			return
		}
	}
}

// A command that has read its input and says nothing ends with the connection, and so do its children.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := filepath.Join(t.TempDir(), "child")
	ctx, interrupt := context.WithCancel(t.Context())
	said, say := io.Pipe()
	go func() {
		_, _ = said.Read(make([]byte, 100))
		interrupt()
	}()
	_, err = Run(ctx, "host", "sh -c 'echo $$ > "+child+"; echo begun; exec sleep 60'; true", strings.NewReader(""), say, io.Discard, ssh.Options{Command: []string{self}}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	isKilled(t, child)
}

// unread is an output that nobody reads.
type unread struct{ full chan struct{} }

func (u unread) Write([]byte) (int, error) {
	close(u.full)
	select {}
}

// Who interrupts need not read the output before.
func TestInterruptedUnread(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	out, ended := unread{make(chan struct{})}, make(chan error)
	go func() {
		_, err := Run(ctx, "host", "echo begun; sleep 100", strings.NewReader(""), out, io.Discard, ssh.Options{Command: []string{self}}, nil)
		ended <- err
	}()
	<-out.full
	interrupt()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the output to be read")
	}
}

// A command outlives ssh, and what it complains of afterwards is told.
func TestOutlivesSSH(t *testing.T) {
	t.Parallel()
	command, _, cut := sshtest.Fragile(t, "")
	in, say := io.Pipe()
	read, out := io.Pipe()
	go func() {
		_, _ = say.Write([]byte("begun\n"))
		_, _ = io.ReadFull(read, make([]byte, 6))
		cut()
		time.Sleep(500 * time.Millisecond)
		say.Close()
		_, _ = io.Copy(io.Discard, read)
	}()
	var told bytes.Buffer
	status, err := Run(t.Context(), "host", "cat; for i in 1 2 3; do echo complaint >&2 || exit 9; sleep 0.1; done; exit 3", in, out, &told, ssh.Options{Command: command}, nil)
	if err != nil || status != 3 || told.String() != "complaint\ncomplaint\ncomplaint\n" {
		t.Errorf("status %d, %q, %v; want 3, and three complaints", status, told.String(), err)
	}
}

// A command that complains at length does not wait for an ssh that takes nothing any more, as one whose link is gone. Output and complaints are told apart.
func TestSilentSSH(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "ssh")
	if err := os.WriteFile(script, []byte("[ \"$1\" = -T ] || exit 1\ncd "+dir+" && mkfifo err && exec 4<>err && exec "+self+" \"$@\" 2>&4"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	const each = 100000 // more than a pipe takes
	var out, told bytes.Buffer
	status, err := Run(ctx, "host", fmt.Sprintf("for i in 1 2 3; do head -c %d /dev/zero; head -c %[1]d /dev/zero | tr '\\0' x >&2; done; exit 3", each), strings.NewReader(""), &out, &told,
		ssh.Options{Command: []string{"sh", script}}, nil)
	if err != nil || status != 3 || !bytes.Equal(out.Bytes(), make([]byte, 3*each)) || told.String() != strings.Repeat("x", 3*each) {
		t.Errorf("status %d, %v, %d bytes of output, %d of complaints", status, err, out.Len(), told.Len())
	}
}

// broken is what nobody reads any more.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// Complaints that nobody takes keep nobody from the output.
func TestNobodyHears(t *testing.T) {
	var sent, out bytes.Buffer
	for _, b := range []*blocks{{to: &sent, kind: complaint}, {to: &sent}} {
		_, _ = b.Write([]byte("words"))
	}
	sent.Write([]byte{0, 0, 0, 0, 3})
	if status, err := unpack(&out, heedless{broken{}}, &sent); status != 3 || err != nil || out.String() != "words" {
		t.Errorf("status %d, %v, %q", status, err, out.String())
	}
}

// Whoever reads this process's standard error goes, and it lives.
func TestComplaintsHaveNoReader(t *testing.T) {
	const child = "PIPE_TEST_COMPLAINS"
	if os.Getenv(child) != "" {
		_, _ = newHeedless(os.Stderr).Write([]byte("words"))
		fmt.Println("it lives")
		return
	}
	read, write, err := os.Pipe()
	if err == nil {
		err = read.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env, cmd.Stderr = append(os.Environ(), child+"=1"), write
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "it lives") {
		t.Errorf("%v: %s", err, out)
	}
}

// A far side that is killed, for want of memory perhaps, takes the command and its children along. Their input does not end before: who has half of it might take that for all.
func TestFarSideIsKilled(t *testing.T) {
	t.Parallel()
	command, dir, _ := sshtest.Fragile(t, "")
	final, child := filepath.Join(dir, "final"), filepath.Join(dir, "child")
	in, say := io.Pipe()
	read, out := io.Pipe()
	killed := make(chan error, 1)
	go func() {
		_, _ = say.Write([]byte("half\n"))
		_, _ = io.ReadFull(read, make([]byte, 5))
		text, err := os.ReadFile(filepath.Join(dir, "far"))
		pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
		if err = errors.Join(err, bad); err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		killed <- err
	}()
	_, err := Run(t.Context(), "host", "sh -c 'echo $$ > "+child+"; exec sleep 60' & while ! [ -s "+child+" ]; do sleep 0.01; done; cat; touch '"+final+"'", in, out, io.Discard, ssh.Options{Command: command}, nil)
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	if err == nil {
		t.Error("the near side hears of nothing")
	}
	time.Sleep(1500 * time.Millisecond)
	if _, err := os.Stat(final); err == nil {
		t.Error("the command took its input for whole")
	}
	isKilled(t, child)
}

// farEnd is that of a connection.
func farEnd(t *testing.T) *stripe.Conn {
	t.Helper()
	a, b := stripe.NewKey(), stripe.NewKey()
	l, err := stripe.Listen(&stripe.Config{Key: b, Peers: []stripe.PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	near, err := stripe.Dial(t.Context(), &stripe.Config{Key: a, Peers: []stripe.PublicKey{b.Public()}}, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Abort(); far.(*stripe.Conn).Abort(); l.Close() })
	return far.(*stripe.Conn)
}

// Nobody waits for what the far side says when the near side has gone, as in plait pipe server yes | head: it would come after the shell's prompt.
func TestNearSideHasGone(t *testing.T) {
	far := farEnd(t)
	if err := errors.Join(far.SetWriteDeadline(time.Unix(1, 0)), Serve(far, "true")); err != nil {
		t.Error(err)
	}
}

// Input that is cut off does not end: a command that does something at its end would do it with half of it.
func TestCutOff(t *testing.T) {
	far := farEnd(t)
	if err := far.SetReadDeadline(time.Unix(1, 0)); err != nil { // reading fails some time before the connection is known to be lost
		t.Fatal(err)
	}
	dir := t.TempDir()
	final, started, served := filepath.Join(dir, "final"), filepath.Join(dir, "started"), make(chan error)
	go func() { served <- Serve(far, "echo > "+started+"; cat; : > '"+final+"'") }()
	begun(t, started)
	time.Sleep(200 * time.Millisecond) // for cat to end, if it did
	far.Abort()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(final); err == nil {
		t.Error("the command took its input for whole")
	}
}

// What a command has left in a session of its own has the output open for as long as it likes. Once nobody reads that, it is not waited for.
func TestLeftInASession(t *testing.T) {
	far := farEnd(t)
	left, served := filepath.Join(t.TempDir(), "left"), make(chan error, 1)
	go func() {
		served <- Serve(far, "setsid sh -c 'echo $$ > "+left+"; exec sleep 60' & while ! [ -s "+left+" ]; do sleep 0.01; done")
	}()
	pid, err := strconv.Atoi(begun(t, left))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	far.Abort()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second): // less than it sleeps
		t.Error("it is waited for")
	}
}

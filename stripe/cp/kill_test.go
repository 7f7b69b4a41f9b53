package cp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/ssh"
	"plait.dev/plait/stripe/ssh/sshtest"
)

// The test binary is also the near side of a copy, ssh, and what ssh starts, each a process that can be killed.
func TestMain(m *testing.M) {
	if os.Getenv("CP_TEST_NEAR") == "" || len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "-") {
		sshtest.Main(m, farSide)
		return
	}
	job, err := Parse(os.Args[1:])
	if err == nil {
		job.SSH = ssh.Options{Command: strings.Fields(os.Getenv("CP_TEST_NEAR")), Carrier: stripe.Carrier(os.Getenv("CP_TEST_CARRIER"))}
		if links := os.Getenv("CP_TEST_FAR_LINKS"); links != "" {
			job.SSH.FarLinks, err = stripe.ParseLinks(links)
		}
	}
	if err == nil {
		err = errors.Join(job.Run(context.Background(), &JSON{Out: os.Stdout}), tellMemory())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "near:", err)
		os.Exit(1)
	}
}

// farSide says who it is, in a file that is locked until this process has ended.
func farSide() ssh.Handler {
	pid, err := os.Create(os.Getenv("CP_TEST_PID"))
	if err == nil {
		err = syscall.Flock(int(pid.Fd()), syscall.LOCK_SH)
	}
	if err == nil {
		_, err = fmt.Fprint(pid, os.Getpid())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "far:", err)
		os.Exit(1)
	}
	return ssh.Handler{One: func(c *stripe.Conn, _ string, first []byte) error {
		defer pid.Close()
		defer c.Close()
		return errors.Join(Serve(c, first), tellMemory())
	}}
}

// memoryVariable names a file to which each end appends the most memory it has held, as /proc/self/status has it (VmHWM). What wait4 tells of a process begins with what its parent held.
const memoryVariable = "CP_TEST_MEMORY"

func tellMemory() error {
	path := os.Getenv(memoryVariable)
	if path == "" {
		return nil
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(regexp.MustCompile(`VmHWM:.*\n`).FindString(string(status)))
	return errors.Join(err, f.Close())
}

// near makes the process of the near side.
func near(t testing.TB, args ...string) (cmd *exec.Cmd, farPid func() int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pid := filepath.Join(t.TempDir(), "pid")
	cmd = exec.Command(self, args...)
	// With -race either end would stay for a second when all is done.
	cmd.Env = append(os.Environ(), "CP_TEST_NEAR="+self, "CP_TEST_PID="+pid, "GORACE=atexit_sleep_ms=0")
	t.Cleanup(func() { // the far side may outlive a near side that was killed, and write where the test's files are
		if f, err := os.Open(pid); err == nil {
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			f.Close()
		}
	})
	return cmd, func() int {
		b, _ := os.ReadFile(pid)
		n, _ := strconv.Atoi(string(b))
		return n
	}
}

// Both sides are killed at random moments. What has its name is right at any time, and the copy after the last kill is whole.
func TestKill(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	r := rand.New(rand.NewPCG(7, 7))
	want, files, largest := 1, 50, 2<<20
	if rung.Full() {
		want, files, largest = 25, 200, 30<<20 // a hundred kills in all
	}
	sizes := []int{0, 1, rung.Times(1, 5) << 20}
	for range files {
		sizes = append(sizes, r.IntN(20000))
	}
	sizes[len(sizes)/2] = largest // some have their names before it, some after
	contents := map[string][]byte{}
	for i, n := range sizes {
		b := make([]byte, n)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(b)
		name := fmt.Sprintf("file%03d", i)
		contents[name] = b
		if err := os.WriteFile(filepath.Join(from, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(to string) (whole int) {
		for name, want := range contents {
			got, err := os.ReadFile(filepath.Join(to, filepath.Base(from), name))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s has %d wrong bytes, of %d: %v", name, len(got), len(want), err)
			}
			whole++
		}
		return whole
	}
	for _, c := range []struct {
		name    string
		pull    bool
		killFar bool
	}{{"push, near", false, false}, {"push, far", false, true}, {"pull, near", true, false}, {"pull, far", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(len(c.name)), 8))
			to := t.TempDir() + "/"
			args := []string{from, "host:" + to}
			if c.pull {
				args = []string{"host:" + from, to}
			}
			whole := 200 * time.Millisecond // what a copy takes, once it is known
			kills := 0
			for tries := 0; kills < want; tries++ { // a copy may have ended before it is killed
				if tries == 10*want {
					t.Fatalf("%d of %d copies were killed; want %d", kills, tries, want)
				}
				start := time.Now()
				cmd, farPid := near(t, args...)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(r.Int64N(int64(whole))))
				victim := cmd.Process.Pid
				if c.killFar {
					victim = farPid()
				}
				hit := victim > 1 && syscall.Kill(victim, syscall.SIGKILL) == nil
				err := cmd.Wait()
				n := check(to)
				switch {
				case err == nil:
					whole = time.Since(start)
				case !hit:
					t.Fatalf("a copy that was not killed: %v", err)
				default:
					kills++
					whole += whole / 4
				}
				t.Logf("kill %d: %v, %d files are whole", kills, err, n)
				if n == len(sizes) { // begin again
					if err := os.RemoveAll(filepath.Join(to, filepath.Base(from))); err != nil {
						t.Fatal(err)
					}
				}
			}
			cmd, _ := near(t, args...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if n := check(to); n != len(sizes) {
				t.Errorf("%d of %d files are there", n, len(sizes))
			}
			left, _ := filepath.Glob(filepath.Join(to, filepath.Base(from), ".plait-part-*"))
			if len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

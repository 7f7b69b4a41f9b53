package cp

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/lab/netns"
)

// scp sends a file by OpenSSH, which uses one link.
func (h *hosts) scp(b *testing.B, dir, from, to string) (cpu time.Duration, kb int64) {
	b.Helper()
	b.StopTimer()
	defer b.StartTimer()
	server, err := exec.LookPath("sshd")
	if err != nil { // scripts/bootstrap leaves it out: the package begins to serve the host
		b.Skip("there is no sshd; Debian's package openssh-server has it, and starts it")
	}
	host, id := filepath.Join(dir, "host"), filepath.Join(dir, "id")
	for _, key := range []string{host, id} {
		if _, err := os.Stat(key); err != nil {
			h.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
		}
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		b.Fatal(err)
	}
	sshd := exec.Command(server, "-D", "-f", "/dev/null", "-p", "2222", "-h", host, "-o", "AuthorizedKeysFile="+id+".pub", "-o", "StrictModes=no", "-o", "UsePAM=no",
		"-o", "PidFile=none", "-o", "Subsystem=sftp internal-sftp")
	if err := netns.Start(h.far, sshd); err != nil {
		b.Fatal(err)
	}
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := netns.Do(h.near, func() error {
			c, err := net.Dial("tcp", "10.79.0.2:2222")
			if err == nil {
				c.Close()
			}
			return err
		})
		if err == nil {
			break
		}
		if time.Since(start) > 10*time.Second {
			b.Fatalf("sshd does not listen: %v", err)
		}
	}
	scp := exec.Command("scp", "-q", "-P", "2222", "-i", id, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", from, "root@10.79.0.2:"+to)
	b.StartTimer()
	if err = netns.Start(h.near, scp); err == nil {
		err = scp.Wait()
	}
	b.StopTimer()
	if err != nil {
		b.Fatalf("scp: %v", err)
	}
	time.Sleep(200 * time.Millisecond) // until sshd has waited for its child, whose times are counted then
	_ = sshd.Process.Signal(syscall.SIGTERM)
	_ = sshd.Wait()
	for _, state := range []*os.ProcessState{scp.ProcessState, sshd.ProcessState} {
		cpu += state.UserTime() + state.SystemTime()
		kb = max(kb, state.SysUsage().(*syscall.Rusage).Maxrss)
	}
	return cpu, kb
}

package daemon

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
)

// A process without the rights to use BPF is told which it lacks, and nothing of limits that do not matter.
func TestRefused(t *testing.T) {
	rung.Netns(t)
	for _, c := range []struct { // the one that loads first: what package ebpf finds out about the kernel without a right, it remembers for the process
		name         string
		capabilities []uint // those it has
		says         string
	}{
		{"what it has", []uint{capNetAdmin, capBPF, capPerfmon}, ""},
		{"none", nil, "this process lacks CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN: run plait as root"},
		{"network", []uint{capNetAdmin}, "this process lacks CAP_BPF, CAP_PERFMON: run plait as root"},
		{"no tracing", []uint{capNetAdmin, capBPF}, "this process lacks CAP_PERFMON: run plait as root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec, linked, err := bpf.Load()
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() {
				runtime.LockOSThread() // and never unlocked: the thread ends with its rights
				var set [2]unix.CapUserData
				for _, bit := range c.capabilities {
					set[bit/32].Effective |= 1 << (bit % 32)
					set[bit/32].Permitted |= 1 << (bit % 32)
				}
				if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &set[0]); err != nil {
					done <- err
					return
				}
				k, err := loadKernel(spec, linked, bpf.Control{})
				if err == nil {
					err = k.Close()
				}
				done <- err
			}()
			err = <-done
			switch {
			case c.says == "" && err != nil:
				t.Errorf("got %v, want that it loads", err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), "operation not permitted: "+c.says) || strings.Contains(err.Error(), "MEMLOCK")):
				t.Errorf("got %v, want %q in it", err, c.says)
			}
		})
	}
}

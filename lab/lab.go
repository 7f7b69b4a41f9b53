// Package lab runs experiments: it boots the guest image once, keeps the machine's state, and resumes it for every cell
// of an experiment, as many at a time as there are cores.
package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"plait.dev/plait/lab/vm"
)

// Exit statuses of `plait lab`.
const (
	ExitOK      = 0 // all bounds hold
	ExitBound   = 1 // a bound does not hold
	ExitInput   = 2 // bad input: nothing ran
	ExitInvalid = 3 // a precondition failed: there is no result
)

// memoryPerVM is what one machine needs at its peak: the guest's memory and the emulator's own, in MiB.
const memoryPerVM = vm.MemoryMB + 448

// Lab is where experiments run.
type Lab struct {
	// Cache is the directory for images and saved machines.
	Cache string
	// Agent is the path of the static plait binary that becomes the guest's init.
	Agent string
	// Version of plait.
	Version string
	// Jobs is how many machines run at a time.
	Jobs int
	// Terminal gets progress if it is one; otherwise one line per finished cell.
	Terminal *os.File
	// Console gets what the guests' kernels print, if not nil.
	Console io.Writer
}

// New checks what the host has. jobs 0 is one machine per core, fewer if memory is short. The cache is $PLAIT_CACHE, or
// plait in the user's cache directory.
func New(version string, jobs int) (*Lab, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("start the lab: it runs on linux/amd64, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if _, err := exec.LookPath(vm.Emulator); err != nil {
		return nil, fmt.Errorf("start the lab: %s is not installed; install what the lab needs with `apt-get install qemu-system-x86 mmdebstrap uidmap`", vm.Emulator)
	}
	l := &Lab{Version: version, Jobs: jobs, Terminal: os.Stderr, Cache: os.Getenv("PLAIT_CACHE"), Agent: os.Getenv("PLAIT_AGENT")}
	if l.Cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a cache directory: %w; set PLAIT_CACHE to one", err)
		}
		l.Cache = filepath.Join(base, "plait")
	}
	if strings.ContainsAny(l.Cache, "',\"\\\n") {
		return nil, fmt.Errorf("use cache directory %q: its name must not have a quote, comma, backslash or line break; set PLAIT_CACHE to another", l.Cache)
	}
	if err := os.MkdirAll(l.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("make cache directory: %w; set PLAIT_CACHE to one that can be written", err)
	}
	if l.Agent == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		l.Agent = self
	}
	return l, l.limitJobs()
}

// limitJobs fits the number of machines to the memory there is.
func (l *Lab) limitJobs() error {
	available, err := availableMemoryMB()
	if err != nil {
		return err
	}
	if l.Jobs < 0 {
		return fmt.Errorf("start the lab: %d machines at a time: there must be at least one", l.Jobs)
	}
	fit := available / memoryPerVM
	if fit < 1 {
		return fmt.Errorf("start the lab: %d MiB of memory are available, a virtual machine needs %d", available, memoryPerVM)
	}
	if l.Jobs == 0 {
		l.Jobs = min(runtime.NumCPU(), fit)
	}
	if l.Jobs > fit {
		return fmt.Errorf("start the lab: %d machines at a time need %d MiB of memory, %d are available; use --jobs %d", l.Jobs, l.Jobs*memoryPerVM, available, fit)
	}
	return nil
}

// availableMemoryMB is MemAvailable of /proc/meminfo.
func availableMemoryMB() (int, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib >> 10, nil
		}
	}
	return 0, errors.New("read /proc/meminfo: no MemAvailable")
}

// emulatorVersion is the first line of its --version.
func emulatorVersion(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, vm.Emulator, "--version")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", vm.Emulator, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(line, "QEMU emulator version "), nil
}

// digest is a SHA-256 over parts, in hexadecimal.
func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d\n", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

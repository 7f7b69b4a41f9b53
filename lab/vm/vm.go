// Package vm runs an unmodified Linux kernel in virtual time.
//
// QEMU's TCG interprets the guest with -icount shift=0,sleep=off: one instruction takes one nanosecond of the guest's
// clock, and idle time is skipped. What the guest sees depends on nothing but its image, its saved state and its job: not
// on the speed of the host, nor on what else the host does. Nothing the guest waits for may be asynchronous to its
// clock, so there is no block device and no network device: the root file system is in memory, the job comes in
// through fw_cfg, results leave through debugcon, and the guest itself stops the machine (pvpanic) to be saved.
//
// Only amd64 hosts and guests are supported. Run the tests with `make test`, which installs QEMU.
package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// Emulator is the program that is run.
	Emulator = "qemu-system-x86_64"
	// MemoryMB of every guest. 60 namespaces with FRR and a 100 MB transfer peak at about 700 MB.
	MemoryMB = 1024
	// ClockBase is the date every guest boots at.
	ClockBase = "2026-01-01"
	// jobFile is the fw_cfg file the job comes in.
	jobFile = "opt/plait/job"
	// commandLine of the guest's kernel. No address space layout randomisation, no randomness from the processor: nothing
	// may differ from boot to boot. A small TCP hash, for every sample of all sockets walks it.
	commandLine = "console=ttyS0 quiet rdinit=/init panic=-1 mitigations=off nokaslr random.trust_cpu=off audit=0 tsc=reliable thash_entries=1024"
)

// Image is what a machine boots from.
type Image struct {
	// Kernel is the path of the compressed kernel, Initrd that of the root file system with the agent in it.
	Kernel, Initrd string
}

// State is a directory that holds a stopped machine: its memory (ram) and its devices (devices).
type State string

func (s State) ram() string     { return filepath.Join(string(s), "ram") }
func (s State) devices() string { return filepath.Join(string(s), "devices") }

// Options of a run.
type Options struct {
	// Console receives what the guest's kernel and agent print; nil throws it away.
	Console io.Writer
	// Terminal is the path of a Unix socket to make, on which the guest's console can be used; idle time then passes
	// as it does on the host, and the run is not deterministic.
	Terminal string
}

// Boot boots the image, gives it the job and keeps the machine in dir when the guest asks for it. The lines the guest
// sends go to out.
func Boot(ctx context.Context, image Image, dir State, job []byte, opt Options, out func([]byte)) error {
	if err := allocate(dir.ram()); err != nil {
		return err
	}
	m := machine{job: job, out: out, ram: dir.ram(), shared: true, opt: opt, extra: []string{
		"-kernel", image.Kernel, "-initrd", image.Initrd,
		"-append", commandLine,
	}}
	return m.run(ctx, func(q *qmp) error { return save(q, dir) })
}

// Extend resumes the machine in from, gives it the job and keeps it in dir when the guest asks for it.
func Extend(ctx context.Context, from, dir State, job []byte, out func([]byte)) error {
	if err := copySparse(from.ram(), dir.ram()); err != nil {
		return fmt.Errorf("copy saved memory: %w", err)
	}
	m := machine{job: job, out: out, ram: dir.ram(), shared: true, extra: []string{"-incoming", "defer"}}
	return m.run(ctx, func(q *qmp) error {
		if err := resume(q, from); err != nil {
			return err
		}
		return save(q, dir)
	})
}

// Resume starts a machine from its saved state, which stays as it is, gives it the job and returns when the guest powers
// off. The lines the guest sends go to out.
func Resume(ctx context.Context, from State, job []byte, opt Options, out func([]byte)) error {
	m := machine{job: job, out: out, ram: from.ram(), opt: opt, extra: []string{"-incoming", "defer"}}
	return m.run(ctx, func(q *qmp) error {
		if err := resume(q, from); err != nil {
			return err
		}
		return q.wait("SHUTDOWN")
	})
}

// machine is one process of the emulator.
type machine struct {
	job    []byte
	out    func([]byte)
	ram    string
	shared bool // writes to the memory go to the file, not to a private copy
	opt    Options
	extra  []string
}

// arguments of the emulator. The output leaves through descriptor 3.
func (m *machine) arguments(jobPath string) []string {
	share := "off"
	if m.shared {
		share = "on"
	}
	sleep := "off"
	if m.opt.Terminal != "" {
		sleep = "on"
	}
	args := []string{
		"-accel", "tcg", "-icount", "shift=0,sleep=" + sleep, "-rtc", "base=" + ClockBase + ",clock=vm", "-seed", "42",
		"-machine", "pc,memory-backend=ram", "-cpu", "Nehalem", "-smp", "1", "-m", fmt.Sprint(MemoryMB),
		"-object", fmt.Sprintf("memory-backend-file,id=ram,size=%dM,mem-path=%s,share=%s", MemoryMB, m.ram, share),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-qmp", "stdio",
		"-device", "pvpanic,ioport=0x505", "-action", "panic=pause",
		"-chardev", "file,id=out,path=/proc/self/fd/3", "-device", "isa-debugcon,iobase=0xe9,chardev=out",
		"-fw_cfg", "name=" + jobFile + ",file=" + jobPath,
	}
	switch {
	case m.opt.Terminal != "":
		args = append(args, "-chardev", "socket,id=con,server=on,wait=on,path="+m.opt.Terminal, "-serial", "chardev:con")
	case m.opt.Console != nil:
		args = append(args, "-chardev", "file,id=con,path=/proc/self/fd/4", "-serial", "chardev:con")
	default:
		args = append(args, "-serial", "null")
	}
	return append(args, m.extra...)
}

// run starts the emulator, lets drive talk to it, and ends it. Errors carry what the emulator printed.
func (m *machine) run(ctx context.Context, drive func(*qmp) error) (err error) {
	dir, err := os.MkdirTemp("", "plait-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	job := filepath.Join(dir, "job")
	if err := os.WriteFile(job, m.job, 0o600); err != nil {
		return err
	}
	alive, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(alive, Emulator, m.arguments(job)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	read, lines, err := linePipe(m.out)
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{lines}
	done := read
	if m.opt.Console != nil {
		consoleDone, console, err := linePipe(func(b []byte) { _, _ = m.opt.Console.Write(append(b, '\n')) })
		if err != nil {
			return err
		}
		defer func() { <-consoleDone }()
		defer console.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, console)
	}
	if err := cmd.Start(); err != nil {
		lines.Close()
		return fmt.Errorf("start %s: %w; install it with `apt-get install qemu-system-x86`", Emulator, err)
	}
	lines.Close()
	q := newQMP(stdin, stdout)
	if err = negotiate(q); err == nil {
		err = drive(q)
	}
	if q.command("quit", nil, nil) != nil {
		stop()
	}
	for range q.events {
	}
	waitErr := cmd.Wait()
	<-done
	if ctx.Err() != nil && err != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", errors.Join(err, waitErr), strings.TrimSpace(complaint.String()))
	}
	return nil
}

// Configuration identifies everything about a machine that its saved state depends on beside the image.
func Configuration() string {
	m := machine{ram: "ram"}
	return strings.Join(m.arguments("job"), " ") + " " + commandLine
}

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
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"
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
	// pauseLine is what the guest says before it stops the machine.
	pauseLine = "pausing"
	// commandLine of the guest's kernel. No address space layout randomisation, no randomness from the processor: nothing
	// may differ from boot to boot. A small TCP hash, for every sample of all sockets walks it. The second line leaves out
	// hardening and accounting, which change no protocol and would be a twentieth of what a guest computes.
	commandLine = "console=ttyS0 quiet rdinit=/init panic=-1 mitigations=off nokaslr random.trust_cpu=off audit=0 tsc=reliable thash_entries=1024" +
		" psi=0 noautogroup lsm= init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off cgroup_disable=cpu,cpuacct,memory,io,pids"
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

// Crash is the error of a guest that did not power off by itself.
type Crash struct{ Reason string }

func (e *Crash) Error() string {
	return "the guest crashed: " + e.Reason + "; --console FILE keeps what it printed"
}

// lastWords are what a Go program or the kernel says first when it crashes.
var lastWords = regexp.MustCompile(`^(panic|fatal error|SIG[A-Z]+): |Kernel panic`)

// lastWordsTime is what a guest that crashed has to print the rest. It may go on computing for ever, and the emulator's main loop, which would end it, does not
// come before the virtual CPU halts (alternate).
var lastWordsTime = 2 * time.Second

// endedInOrder is the emulator's exit status when the guest has ended it (isa-debug-exit).
const endedInOrder = 0x21<<1 | 1

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
	m := machine{job: job, out: out, ram: dir.ram(), shared: true, opt: opt, extra: append(boot(image), "-S")}
	return m.run(ctx, func(q *monitor) error {
		if err := begin(q); err != nil {
			return fmt.Errorf("start the machine: %w", err)
		}
		return save(q, dir)
	})
}

// Extend resumes the machine in from, gives it the job and keeps it in dir when the guest asks for it.
func Extend(ctx context.Context, from, dir State, job []byte, out func([]byte)) error {
	if err := copySparse(from.ram(), dir.ram()); err != nil {
		return fmt.Errorf("copy saved memory: %w", err)
	}
	m := machine{job: job, out: out, ram: dir.ram(), shared: true, extra: []string{"-incoming", "defer"}}
	return m.run(ctx, func(q *monitor) error {
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
	return m.run(ctx, func(q *monitor) error {
		if err := resume(q, from); err != nil {
			return err
		}
		q.ended()
		return nil
	})
}

// Live boots the image and lets it go on when it asks to be saved. Its console is at the socket opt.Terminal. A machine
// that was saved in virtual time cannot go on in real time: its clock would jump.
func Live(ctx context.Context, image Image, dir string, job []byte, opt Options, out func([]byte)) error {
	ram := State(dir).ram()
	if err := allocate(ram); err != nil {
		return err
	}
	m := machine{job: job, out: out, ram: ram, opt: opt, extra: boot(image)}
	return m.run(ctx, func(control *monitor) error {
		if err := await(control, "guest-panicked", true); err != nil {
			return fmt.Errorf("wait for the guest: %w", err)
		}
		if _, err := control.command("cont"); err != nil {
			return fmt.Errorf("start the guest: %w", err)
		}
		control.ended()
		return nil
	})
}

// boot is what the emulator needs to boot an image.
func boot(image Image) []string {
	return []string{"-kernel", image.Kernel, "-initrd", image.Initrd, "-append", commandLine}
}

// Configuration identifies everything about a machine that its saved state depends on beside the image.
func Configuration() string {
	m := machine{ram: "ram"}
	return strings.Join(m.arguments(), " ") + " " + commandLine
}

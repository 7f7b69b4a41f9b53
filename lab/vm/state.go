package vm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// allocate makes a sparse file for the memory of a machine.
func allocate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(MemoryMB<<20), f.Close())
}

// copySparse copies a file and keeps its holes, which are most of a machine's memory.
func copySparse(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := allocate(to); err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for at := int64(0); ; {
		data, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return dst.Close()
		}
		if err != nil {
			return errors.Join(err, dst.Close())
		}
		hole, err := unix.Seek(int(src.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return errors.Join(err, dst.Close())
		}
		if _, err := io.Copy(io.NewOffsetWriter(dst, data), io.NewSectionReader(src, data, hole-data)); err != nil {
			return errors.Join(err, dst.Close())
		}
		at = hole
	}
}

// poll is how often the emulator is asked for its status while it saves or loads a machine.
const poll = 5 * time.Millisecond

// prepare keeps memory out of saved machines, for it is in the file that backs it, and timers of the host's clock out of resumed ones (alternate).
func prepare(m *monitor) error {
	_, err := m.command("migrate_set_capability x-ignore-shared on")
	if err == nil {
		_, err = m.command("migrate_set_parameter announce-rounds 0")
	}
	return err
}

// await asks for the machine's status until it is, or is no longer, the one given.
func await(m *monitor, status string, is bool) error {
	for {
		now, err := m.status()
		if err != nil || (now == status) == is {
			return err
		}
		time.Sleep(poll)
	}
}

// save waits until the guest stops the machine and writes its devices beside its memory, which is in the file already. The main loop is asked nothing before:
// a question would wake it at a moment of the host (alternate).
func save(m *monitor, dir State) error {
	<-m.pausing
	if err := await(m, "guest-panicked", true); err != nil {
		return fmt.Errorf("wait for the guest: %w", err)
	}
	if _, err := m.command(`migrate "exec:cat > '` + dir.devices() + `'"`); err != nil { // returns when it is done
		return fmt.Errorf("save the machine: %w", err)
	}
	progress, err := m.command("info migrate")
	if err == nil && !strings.Contains(progress, "Migration status: completed") {
		err = errors.New(progress)
	}
	if err != nil {
		return fmt.Errorf("save the machine: %w", err)
	}
	return nil
}

// resume loads the devices and lets the machine go on from the instruction it was stopped in.
func resume(m *monitor, from State) error {
	_, err := m.command(`migrate_incoming "exec:cat '` + from.devices() + `'"`)
	if err == nil {
		err = await(m, "inmigrate", false)
	}
	if err == nil {
		err = begin(m)
	}
	if err != nil {
		return fmt.Errorf("resume the machine saved in %s (remove that, and it is made anew): %w", from, err)
	}
	return nil
}

// begin lets a stopped machine run.
func begin(m *monitor) error {
	err := alternate(m)
	if err == nil {
		_, err = m.command("cont")
	}
	return err
}

// alternate has the emulator's two threads, which are on one core, take turns only when the other one waits. The main loop skips idle time, and is woken whenever a
// timer of the guest expires or its virtual CPU halts. If it ran at once, the thread of the virtual CPU, which holds the lock both need, would have to be let in
// again before either got on: four times as many switches. If it came after the virtual CPU had halted and before the instructions were accounted
// (accel/tcg/icount, icount_start_warp_timer), it would skip from another moment, and results would differ in some digit. With one real-time priority for both,
// first in first out, neither can happen: the thread of the virtual CPU sleeps only when it has accounted. Without the right to such a priority (EPERM) both are
// batch jobs, which do not interrupt each other either, but other programs come between, and time slices.
//
// The main loop does not come at all while the guest computes. So nothing that the guest waits for by computing may be the main loop's: the guest ends the
// emulator itself (isa-debug-exit), and no timer of the host's clock may be left (icount_get_limit would give the virtual CPU no instruction until the main loop
// had run it), as those which announce a resumed machine to its network would be.
func alternate(m *monitor) error {
	printed, err := m.command("info cpus") // * CPU #0: thread_id=1234
	if err != nil {
		return err
	}
	_, number, _ := strings.Cut(printed, "thread_id=")
	processor, err := strconv.Atoi(strings.TrimSpace(number))
	if err != nil {
		return fmt.Errorf("find the thread of the virtual CPU: %q", printed)
	}
	err = schedule(unix.SCHED_FIFO, 1, processor, m.mainLoop)
	if errors.Is(err, unix.EPERM) {
		err = schedule(unix.SCHED_BATCH, 0, processor, m.mainLoop)
	}
	return err
}

// schedule gives threads a scheduling policy. They stay as nice as they are: to be less so needs a right.
func schedule(policy, priority uint32, threads ...int) error {
	for _, thread := range threads {
		attr, err := unix.SchedGetAttr(thread, 0)
		if err == nil {
			attr.Policy, attr.Priority = policy, priority
			err = unix.SchedSetAttr(thread, attr, 0)
		}
		if err != nil {
			return fmt.Errorf("schedule the emulator's threads: %w", err)
		}
	}
	return nil
}

// linePipe returns a pipe whose lines are given to f; the channel closes when the last writer has closed.
func linePipe(f func([]byte)) (<-chan struct{}, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.Close()
		lines := bufio.NewReaderSize(r, 1<<16)
		for {
			line, err := lines.ReadBytes('\n')
			if len(line) > 0 && err == nil {
				f(line[:len(line)-1])
			}
			if err != nil {
				return
			}
		}
	}()
	return done, w, nil
}

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

// ignoreMemory keeps memory out of saved machines: it is in the file that backs it.
func ignoreMemory(m *monitor) error {
	_, err := m.command("migrate_set_capability x-ignore-shared on")
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
// a question would wake it at a moment of the host (preferMainLoop).
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
		return fmt.Errorf("resume the machine: %w", err)
	}
	return nil
}

// begin lets a stopped machine run.
func begin(m *monitor) error {
	err := preferMainLoop(m)
	if err == nil {
		_, err = m.command("cont")
	}
	return err
}

// preferMainLoop lets the emulator's main loop run before the thread of the virtual CPU, which is on the same core. It skips idle time, and is woken when the
// virtual CPU has accounted its last instructions and halts: if it came later, with the virtual CPU halted again and the instructions since not yet accounted
// (accel/tcg/icount, icount_start_warp_timer), or with the virtual CPU stopped before the machine is (cpu_stop_current), it would skip from another moment, and
// results would differ in some digit. Both get a real-time priority, so that no other program comes between. Without the right to such priorities (EPERM) that
// can happen, on a busy host above all.
func preferMainLoop(m *monitor) error {
	printed, err := m.command("info cpus") // * CPU #0: thread_id=1234
	if err != nil {
		return err
	}
	_, number, _ := strings.Cut(printed, "thread_id=")
	processor, err := strconv.Atoi(strings.TrimSpace(number))
	if err != nil {
		return fmt.Errorf("find the thread of the virtual CPU: %q", printed)
	}
	for priority, thread := range []int{processor, m.mainLoop} {
		err = unix.SchedSetAttr(thread, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: uint32(priority + 1)}, 0)
		if errors.Is(err, unix.EPERM) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("give the emulator a real-time priority: %w", err)
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

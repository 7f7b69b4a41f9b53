package vm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
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

// negotiate opens the protocol and keeps memory out of saved states: it is in the file that backs it.
func negotiate(q *qmp) error {
	if err := q.command("qmp_capabilities", nil, nil); err != nil {
		return err
	}
	type capability struct {
		Name string `json:"capability"`
		On   bool   `json:"state"`
	}
	return q.command("migrate-set-capabilities", map[string]any{"capabilities": []capability{{"x-ignore-shared", true}}}, nil)
}

// save waits until the guest stops the machine and writes its devices beside its memory, which is in the file already.
func save(q *qmp, dir State) error {
	if err := q.wait("GUEST_PANICKED"); err != nil {
		return err
	}
	err := q.command("migrate", map[string]string{"uri": "exec:cat > '" + dir.devices() + "'"}, nil)
	for err == nil {
		var progress struct {
			Status string `json:"status"`
		}
		if err = q.command("query-migrate", nil, &progress); err != nil {
			break
		}
		switch progress.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("save the machine: migration %s", progress.Status)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("save the machine: %w", err)
}

// resume loads the devices and lets the machine go on from the instruction it was stopped in.
func resume(q *qmp, from State) error {
	err := q.command("migrate-incoming", map[string]string{"uri": "exec:cat '" + from.devices() + "'"}, nil)
	for err == nil {
		var machine struct {
			Status string `json:"status"`
		}
		if err = q.command("query-status", nil, &machine); err != nil {
			break
		}
		if machine.Status != "inmigrate" {
			if err = q.command("cont", nil, nil); err == nil {
				return nil
			}
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	return fmt.Errorf("resume the machine: %w", err)
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

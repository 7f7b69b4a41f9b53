package emu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// memoryBytes is when the garbage collector starts: what it finds is mostly the frames of dropped packets, some
	// 60000 of 1500 bytes. Until then nothing interrupts the thread.
	memoryBytes = 128 << 20
	// priority among SCHED_FIFO threads, from 1 to 99; the kernel's own run at 50 and 99.
	priority = 40
)

// Main is the emulator's process. Lines of JSON come in, first a Config, then requests; each gets one line of JSON back.
// It returns the exit status: when the input ends, or after an error, which has then been answered
// or written to standard error.
func Main(stdin io.Reader, stdout io.Writer) int {
	runtime.LockOSThread()
	if err := becomeRealTime(); err != nil {
		_ = json.NewEncoder(stdout).Encode(answer{Error: err.Error()})
		return 1
	}
	requests, answers := json.NewDecoder(bufio.NewReader(stdin)), json.NewEncoder(stdout)
	e, err := begin(requests)
	if err != nil {
		_ = answers.Encode(answer{Error: err.Error()})
		return 1
	}
	if err := answers.Encode(answer{Ready: true}); err != nil {
		fmt.Fprintln(os.Stderr, "emulator: write answer:", err)
		return 1
	}
	answered := make(chan struct{})
	go func() {
		e.runRequests(requests, answers)
		close(answered)
	}()
	if err := e.run(); err != nil {
		fmt.Fprintln(os.Stderr, "emulator:", err)
		return 1
	}
	<-answered
	return 0
}

// becomeRealTime gives all threads of the process the policy SCHED_FIFO. The Go runtime spins where threads wait for each
// other briefly: on one processor, a thread that runs before the others would spin until the kernel's limit for real-time
// threads, 0.95 s, stops it. So they must all have the same priority from the start, which the program gets by
// executing itself again. Its scheduler is then also told not to interrupt with signals a thread it cannot see waiting.
func becomeRealTime() error {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return fmt.Errorf("get scheduling policy: %w", err)
	}
	if attr.Policy == unix.SCHED_FIFO {
		return nil
	}
	attr = &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}
	if err := unix.SchedSetAttr(0, attr, 0); err != nil {
		return fmt.Errorf("set scheduling policy SCHED_FIFO: %w", err)
	}
	if err := os.Setenv("GODEBUG", "asyncpreemptoff=1"); err != nil {
		return err
	}
	if err := unix.Exec("/proc/self/exe", os.Args, os.Environ()); err != nil {
		return fmt.Errorf("execute itself again: %w", err)
	}
	return nil
}

// begin reads the configuration, makes the devices and prepares the process and the thread.
func begin(requests *json.Decoder) (*emulator, error) {
	var c Config
	if err := requests.Decode(&c); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	e, err := newEmulator(c)
	if err != nil {
		return nil, err
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryBytes)
	runtime.GOMAXPROCS(2) // the thread keeps one to itself; requests need another
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set timer slack: %w", err)
	}
	return e, nil
}

// runRequests decodes, hands over and answers, until the input ends or cannot be understood: then the emulator ends.
func (e *emulator) runRequests(requests *json.Decoder, answers *json.Encoder) {
	for {
		var r request
		err := requests.Decode(&r)
		if err != nil && !errors.Is(err, io.EOF) {
			_ = answers.Encode(answer{Error: fmt.Sprintf("read request: %v", err)})
		}
		if err != nil || answers.Encode(e.handle(r)) != nil {
			break
		}
	}
	_ = e.call(func(time.Duration) { e.quit = true }) // the wake, of an eventfd, fails only where 2^64 others wait
}

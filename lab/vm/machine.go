package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// machine is one process of the emulator.
type machine struct {
	job    []byte
	out    func([]byte)
	ram    string
	shared bool // writes to the memory go to the file, not to a private copy
	opt    Options
	extra  []string
}

// arguments of the emulator. The output leaves through descriptor 3, what the console shows through 4; the job comes in through 5.
func (m *machine) arguments() []string {
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
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "stdio",
		"-device", "pvpanic,ioport=0x505", "-action", "panic=pause", "-device", "isa-debug-exit,iobase=0x501,iosize=1",
		"-chardev", "file,id=out,path=/proc/self/fd/3", "-device", "isa-debugcon,iobase=0xe9,chardev=out",
		"-fw_cfg", "name=" + jobFile + ",file=/proc/self/fd/5",
	}
	console := "file,id=con,path=/proc/self/fd/4"
	if m.opt.Terminal != "" {
		console = "socket,id=con,server=on,wait=on,path=" + m.opt.Terminal
	}
	return append(append(args, "-chardev", console, "-serial", "chardev:con"), m.extra...)
}

// pipes carry the lines of the guest's output and console, and the job.
type pipes struct {
	ends  []*os.File        // the emulator's
	read  []<-chan struct{} // closed when all has been read
	words string            // the first of the lastWords on the console; valid once all has been read

	pausing chan struct{} // closed when the guest is about to stop the machine, or its output has ended
}

// open makes the pipes. heard is called at every line of output, crashed when the console shows the first last words.
func (m *machine) open(heard func(), crashed func(words string)) (*pipes, error) {
	p := &pipes{pausing: make(chan struct{})}
	pausing := sync.OnceFunc(func() { close(p.pausing) })
	output := func(line []byte) {
		heard()
		if string(line) == pauseLine {
			pausing()
			return
		}
		m.out(line)
	}
	console := func(line []byte) {
		if p.words == "" && lastWords.Match(line) {
			p.words = string(bytes.TrimSpace(line))
			crashed(p.words)
		}
		if m.opt.Console != nil {
			_, _ = m.opt.Console.Write(append(line, '\n'))
		}
	}
	for _, f := range []func([]byte){output, console} {
		read, end, err := linePipe(f)
		if err != nil {
			p.release()
			return nil, err
		}
		p.ends, p.read = append(p.ends, end), append(p.read, read)
	}
	go func() {
		<-p.read[0]
		pausing()
	}()
	job, err := inMemory(m.job)
	if err != nil {
		p.release()
		return nil, err
	}
	p.ends = append(p.ends, job)
	return p, nil
}

// inMemory makes a file that is in no directory, so that nothing can be left of it, whatever ends this process.
func inMemory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("job", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "job")
	if _, err := f.Write(content); err != nil {
		f.Close()
		return nil, fmt.Errorf("write a file in memory: %w", err)
	}
	return f, nil
}

// release closes the emulator's ends in this process.
func (p *pipes) release() {
	for _, end := range p.ends {
		end.Close()
	}
}

// start starts the emulator and opens its protocol. It gets no signal from the terminal, and none survives this process.
func start(cmd *exec.Cmd, core int, started func(pid int), pausing <-chan struct{}) (*monitor, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startOn(core, cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w; install it with `apt-get install qemu-system-x86`", Emulator, err)
	}
	started(cmd.Process.Pid)
	return newMonitor(stdin, stdout, cmd.Process.Pid, pausing)
}

// process runs the emulator until it ends, which is soon after drive has returned, at the latest when ctx is done.
func (m *machine) process(ctx context.Context, lines *pipes, started func(pid int), drive func(*monitor) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, Emulator, m.arguments()...)
	var complaint bytes.Buffer
	cmd.Stderr, cmd.ExtraFiles = &complaint, lines.ends
	core, free := claimCore("@plait-lab-core-")
	defer free()
	control, err := start(cmd, core, started, lines.pausing)
	lines.release()
	if cmd.Process == nil {
		return err
	}
	if err == nil {
		err = prepare(control)
	}
	if err == nil {
		err = drive(control)
	}
	_, _ = control.command("quit") // unless it has ended by itself
	control.ended()
	wait := cmd.Wait()
	if killed := m.killed(cmd.ProcessState); killed != nil && ctx.Err() == nil {
		return killed
	}
	if cmd.ProcessState.ExitCode() != endedInOrder {
		err = errors.Join(err, wait)
	}
	for _, read := range lines.read {
		<-read
	}
	switch {
	case lines.words != "":
		return &Crash{lines.words}
	case err != nil:
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return nil
}

// killed says why the host's kernel ended the emulator, nil if it did not.
func (m *machine) killed(state *os.ProcessState) error {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case !ok || !status.Signaled():
		return nil
	case status.Signal() == syscall.SIGBUS: // a page of the file cannot be had
		full := &fs.PathError{Op: "write", Path: m.ram, Err: syscall.ENOSPC}
		return fmt.Errorf("keep the machine's memory in a file: %w; make room there, or set PLAIT_CACHE to a directory that has some", full)
	case status.Signal() == syscall.SIGKILL:
		return errors.New("the emulator was killed, as Linux does with what holds most when memory is short; run fewer machines at a time (--jobs)")
	}
	return nil
}

// run gives the emulator what it needs, watches over it while drive talks to it, and leaves nothing behind. Errors carry
// what the emulator or the guest's console said.
func (m *machine) run(ctx context.Context, drive func(*monitor) error) error {
	watched, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var heard atomic.Int64
	started := func(pid int) {
		if m.opt.Terminal == "" { // a person at the console may think for long
			go watch(watched, pid, func() int { return int(heard.Load()) }, stop)
		}
	}
	crashed := func(words string) { time.AfterFunc(lastWordsTime, func() { stop(&Crash{words}) }) }
	lines, err := m.open(func() { heard.Add(1) }, crashed)
	if err != nil {
		return err
	}
	err = m.process(watched, lines, started, drive)
	if err != nil && watched.Err() != nil {
		return context.Cause(watched)
	}
	return err
}

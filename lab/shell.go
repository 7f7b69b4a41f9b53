package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"plait.dev/plait/lab/agent"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/image"
	"plait.dev/plait/lab/vm"
)

// Shell gives the terminal a shell in the running topology of a cell, in real time.
func (l *Lab) Shell(ctx context.Context, c *experiment.Cell) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return &image.HostError{Err: errors.New("open a shell: standard input is not a terminal; to run commands unattended write an experiment with an application of type command")}
	}
	columns, rows, err := term.GetSize(int(os.Stdin.Fd()))
	if err != nil {
		return err
	}
	p := newProgress(l.Terminal, "shell", nil)
	defer p.close()
	kernel := c.Spec.Kernel
	if _, err := l.Base(ctx, kernel, p.doing); err != nil { // makes the image
		return err
	}
	job := &agent.Job{Spec: c.Spec, Seed: c.Seed, Shell: &agent.Shell{Rows: rows, Columns: columns, Term: os.Getenv("TERM")}}
	input, err := json.Marshal(job)
	if err != nil {
		return err
	}
	dir, socket, err := l.shellDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	machine, err := l.bootable(kernel, dir)
	if err != nil {
		return err
	}
	p.doing("booting the guest in real time and building the topology: half a minute, more with routers")
	var problem error
	err = attended(ctx, socket, p.close, func() error {
		return vm.Live(ctx, machine, dir, input, vm.Options{Terminal: socket}, func(line []byte) {
			var m agent.Message
			if json.Unmarshal(line, &m) != nil {
				return
			}
			if m.Doing != "" {
				p.doing(m.Doing)
			}
			if m.Invalid != "" {
				problem = &Invalid{m.Invalid}
			}
		})
	})
	return errors.Join(err, problem)
}

// shellDir makes the directory of a shell's machine, and names the socket in it. It is one of the machines in the making: prune removes what a shell
// that was killed has left, and the emulator can read its name.
func (l *Lab) shellDir() (dir, socket string, err error) {
	l.prune(keepStates)
	if dir, err = l.newState("open a shell"); err != nil {
		return "", "", err
	}
	socket = filepath.Join(dir, "console")
	if longest := len(syscall.RawSockaddrUnix{}.Path) - 1; len(socket) > longest {
		_ = os.Remove(dir)
		return "", "", &image.HostError{Err: fmt.Errorf("open a shell: the name of its socket %s is longer than the %d characters that Linux allows; set PLAIT_CACHE to a directory with a shorter name", socket, longest)}
	}
	return dir, socket, nil
}

// attended runs a machine with the host's terminal joined to its console, and has given the terminal back when it returns.
func attended(ctx context.Context, socket string, speaks func(), run func() error) error {
	ctx, ended := context.WithCancel(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		runTerminal(ctx, socket, speaks)
	}()
	err := run()
	ended() // it may not have made the socket
	<-left
	return err
}

// runTerminal joins the host's terminal and the guest's console from the guest's first word, before which it calls speaks, until the machine ends. While the guest
// boots, Ctrl-C is an interrupt as everywhere.
func runTerminal(ctx context.Context, socket string, speaks func()) {
	var console net.Conn
	for {
		var err error
		if console, err = net.Dial("unix", socket); err == nil {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
	defer console.Close()
	var word [1]byte
	if _, err := io.ReadFull(console, word[:]); err != nil {
		return
	}
	speaks()
	fd := int(os.Stdin.Fd())
	if old, err := term.MakeRaw(fd); err == nil {
		defer func() { _ = term.Restore(fd, old) }()
	}
	go func() { _, _ = io.Copy(console, os.Stdin) }()
	_, _ = os.Stdout.Write(word[:])
	_, _ = io.Copy(os.Stdout, console)
}

package lab

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pseudoTerminal is a terminal that nobody sees.
func pseudoTerminal(t *testing.T) *os.File {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keys.Close() })
	if err := unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return terminal
}

// Until the guest speaks the terminal is the host's, and Ctrl-C an interrupt; then it is the guest's, until the machine ends.
func TestTerminalIsTheHostsAtFirst(t *testing.T) {
	before := os.Stdin
	defer func() { os.Stdin = before }()
	os.Stdin = pseudoTerminal(t)
	interrupts := func() bool {
		mode, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return mode.Lflag&unix.ISIG != 0
	}
	socket := filepath.Join(t.TempDir(), "console")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ended, spoke := make(chan struct{}), make(chan struct{})
	go func() {
		runTerminal(t.Context(), socket, func() { close(spoke) })
		close(ended)
	}()
	guest, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // for what should not happen
	if !interrupts() {
		t.Error("the guest has the terminal before it has said anything")
	}
	if _, err := guest.Write([]byte("\r")); err != nil {
		t.Fatal(err)
	}
	<-spoke
	for range 1000 {
		if !interrupts() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if interrupts() {
		t.Error("the guest speaks, and has no terminal")
	}
	guest.Close()
	<-ended
	if !interrupts() {
		t.Error("the host has not got its terminal back")
	}
}

package lab

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

func ioctl(t *testing.T, f *os.File, request uintptr, at unsafe.Pointer) {
	t.Helper()
	if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(at)); failed != 0 {
		t.Fatal(failed)
	}
}

// pseudoTerminal is a terminal that nobody sees.
func pseudoTerminal(t *testing.T) *os.File {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keys.Close() })
	var locked, number int32
	ioctl(t, keys, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	ioctl(t, keys, syscall.TIOCGPTN, unsafe.Pointer(&number))
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return terminal
}

// interrupts says that Ctrl-C in the terminal is an interrupt.
func interrupts(t *testing.T) bool {
	t.Helper()
	var mode syscall.Termios
	ioctl(t, os.Stdin, syscall.TCGETS, unsafe.Pointer(&mode))
	return mode.Lflag&syscall.ISIG != 0
}

// Until the guest speaks the terminal is the host's, and Ctrl-C an interrupt; then it is the guest's, until the machine ends.
func TestTerminalIsTheHostsAtFirst(t *testing.T) {
	before := os.Stdin
	defer func() { os.Stdin = before }()
	os.Stdin = pseudoTerminal(t)
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
	if !interrupts(t) {
		t.Error("the guest has the terminal before it has said anything")
	}
	if _, err := guest.Write([]byte("\r")); err != nil {
		t.Fatal(err)
	}
	<-spoke
	for range 1000 {
		if !interrupts(t) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if interrupts(t) {
		t.Error("the guest speaks, and has no terminal")
	}
	guest.Close()
	<-ended
	if !interrupts(t) {
		t.Error("the host has not got its terminal back")
	}
}

// When the machine has ended the host has its terminal, whether the guest has spoken or there was no machine.
func TestTerminalIsGivenBack(t *testing.T) {
	before := os.Stdin
	defer func() { os.Stdin = before }()
	os.Stdin = pseudoTerminal(t)
	socket := filepath.Join(t.TempDir(), "console")
	none := errors.New("no machine")
	if err := attended(t.Context(), socket, func() {}, func() error { return none }); !errors.Is(err, none) {
		t.Error(err)
	}
	for range 20 {
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		spoke := make(chan struct{})
		err = attended(t.Context(), socket, func() { close(spoke) }, func() error {
			defer listener.Close()
			guest, err := listener.Accept()
			if err != nil {
				return err
			}
			defer guest.Close()
			_, err = guest.Write([]byte("\r"))
			<-spoke
			for range 10000 {
				if !interrupts(t) {
					return err
				}
				time.Sleep(time.Millisecond)
			}
			return errors.New("the guest speaks, and has no terminal")
		})
		if err != nil || !interrupts(t) {
			t.Fatalf("the host has not got its terminal back (%v)", err)
		}
	}
}

package lab

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// What a shell that is killed leaves is in the cache, where it is removed as other machines are.
func TestShellLeavesNothing(t *testing.T) {
	l := &Lab{Cache: t.TempDir()}
	dir, socket, err := l.shellDir()
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(dir) != filepath.Join(l.Cache, "state") || filepath.Dir(socket) != dir {
		t.Errorf("%s and %s are not in the cache", dir, socket)
	}
	long := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(dir, long, long); err != nil {
		t.Fatal(err)
	}
	for i := range keepStates {
		if err := os.Mkdir(filepath.Join(l.Cache, "state", "base-"+strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := l.shellDir(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(l.Cache, "state")); len(left) != keepStates+1 || left[keepStates].Name() == filepath.Base(dir) {
		t.Errorf("left: %v", left)
	}
	l.Cache = filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if _, _, err := l.shellDir(); err == nil || !strings.Contains(err.Error(), "PLAIT_CACHE") {
		t.Errorf("a socket with too long a name: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(l.Cache, "state")); len(left) != 0 {
		t.Errorf("left: %v", left)
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

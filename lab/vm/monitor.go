package vm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// monitor speaks to the emulator's human monitor over its standard input and output. The machine protocol (QMP) would be
// easier to read, but QEMU runs it in a thread of its own, which every change of a timer in the guest wakes: 80,000 context
// switches for a virtual second of a 30 Mbit/s flow instead of half of that.
type monitor struct {
	in       io.Writer
	out      *bufio.Reader
	mainLoop int             // the emulator's thread that answers, which is its first
	pausing  <-chan struct{} // closed when the guest is about to stop the machine, or says nothing more
}

var prompt = []byte("(qemu) ")

// errEnded says that the emulator is gone.
var errEnded = errors.New("the emulator ended")

// newMonitor waits for the first prompt.
func newMonitor(in io.Writer, out io.Reader, mainLoop int, pausing <-chan struct{}) (*monitor, error) {
	m := &monitor{in: in, out: bufio.NewReader(out), mainLoop: mainLoop, pausing: pausing}
	_, err := m.answer()
	return m, err
}

// answer reads up to the next prompt.
func (m *monitor) answer() ([]byte, error) {
	var text []byte
	for !bytes.HasSuffix(text, prompt) {
		b, err := m.out.ReadByte()
		if err != nil {
			return text, errEnded
		}
		text = append(text, b)
	}
	return text[:len(text)-len(prompt)], nil
}

// command carries out one command and returns what it prints.
func (m *monitor) command(line string) (string, error) {
	if _, err := io.WriteString(m.in, line+"\n"); err != nil {
		return "", errEnded
	}
	text, err := m.answer()
	if err != nil {
		return "", err
	}
	_, printed, _ := strings.Cut(string(text), "\n") // the first line is the echo
	printed = strings.TrimSpace(printed)
	if strings.HasPrefix(printed, "Error:") {
		return "", fmt.Errorf("%s: %s", line, printed)
	}
	return printed, nil
}

// status is what the machine does: running, inmigrate, guest-panicked, ...
func (m *monitor) status() (string, error) {
	printed, err := m.command("info status") // VM status: paused (guest-panicked)
	printed = strings.TrimPrefix(printed, "VM status: ")
	if _, why, ok := strings.Cut(printed, "("); ok {
		return strings.TrimSuffix(why, ")"), err
	}
	return printed, err
}

// ended waits until the emulator ends, as it does when the guest powers off or crashes.
func (m *monitor) ended() { _, _ = io.Copy(io.Discard, m.out) }

package measure

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"plait.dev/plait/lab/netns"
)

const (
	// captureSnapBytes of every packet are kept: all headers, those of SRv6 and MPTCP included.
	captureSnapBytes = "128"
	// captureLimitBytes of one capture: it is held in the guest's memory.
	captureLimitBytes = 64 << 20
	// captureSettle is how long packets may stay in the kernel's ring before tcpdump sees them: a block of the ring is
	// handed over when it is full or after the read timeout, which tcpdump sets to 1 s.
	captureSettle = 1100 * time.Millisecond
)

// captures are running tcpdumps.
type captures struct{ running []*capture }

// capture is one tcpdump.
type capture struct {
	name     string // node/link
	cmd      *exec.Cmd
	packets  packetBuffer
	messages messageBuffer
	exited   chan error
}

func openCaptures(names []string) (*captures, error) {
	c := &captures{}
	for _, name := range names {
		one, err := openCapture(name)
		if err != nil {
			return nil, errors.Join(err, c.end())
		}
		c.running = append(c.running, one)
	}
	return c, nil
}

// openCapture starts tcpdump on the interface of a node that has the link's name, and waits until it captures.
func openCapture(name string) (*capture, error) {
	node, link, ok := strings.Cut(name, "/")
	if !ok {
		return nil, fmt.Errorf("capture %q: want node/link, e.g. client/access", name)
	}
	c := &capture{name: name, exited: make(chan error, 1)}
	c.messages.listening = make(chan struct{})
	c.cmd = exec.Command("tcpdump", "-i", link, "-n", "-U", "-s", captureSnapBytes, "-w", "-")
	c.cmd.Stdout, c.cmd.Stderr = &c.packets, &c.messages
	if err := netns.Start(node, c.cmd); err != nil {
		return nil, fmt.Errorf("capture %s: %w", name, err)
	}
	go func() { c.exited <- c.cmd.Wait() }()
	select {
	case <-c.messages.listening:
		return c, nil
	case err := <-c.exited:
		return nil, fmt.Errorf("capture %s: tcpdump: %w: %s", name, err, c.messages.String())
	}
}

func (c *captures) finish(_ time.Duration, out *Outcome) error {
	if len(c.running) > 0 {
		time.Sleep(captureSettle)
	}
	if err := c.end(); err != nil {
		return err
	}
	for _, one := range c.running {
		out.Files[strings.ReplaceAll(one.name, "/", "-")+".pcap"] = one.packets.Bytes()
	}
	return nil
}

// end stops all tcpdumps and waits for them.
func (c *captures) end() error {
	var errs []error
	for _, one := range c.running {
		if err := one.end(); err != nil {
			errs = append(errs, fmt.Errorf("capture %s: %w", one.name, err))
		}
	}
	return errors.Join(errs...)
}

// lost matches what tcpdump says at its end if the kernel had no room for packets.
var lost = regexp.MustCompile(`[1-9][0-9]* packets? dropped by kernel`)

func (c *capture) end() error {
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("interrupt tcpdump: %w: %s", err, c.messages.String())
	}
	if err := <-c.exited; err != nil {
		return fmt.Errorf("tcpdump: %w: %s", err, c.messages.String())
	}
	if l := lost.FindString(c.messages.String()); l != "" {
		return errors.New(l)
	}
	if c.packets.full {
		return fmt.Errorf("more than %d MiB: capture a shorter run, or fewer links", captureLimitBytes>>20)
	}
	return nil
}

// packetBuffer keeps the first captureLimitBytes written to it.
type packetBuffer struct {
	bytes.Buffer
	full bool
}

func (b *packetBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > captureLimitBytes {
		b.full = true
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// messageBuffer keeps what tcpdump says and closes listening when it says that it captures.
type messageBuffer struct {
	mu        sync.Mutex
	text      []byte
	said      bool
	listening chan struct{}
}

func (b *messageBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if !b.said && bytes.Contains(b.text, []byte("listening on")) {
		b.said = true
		close(b.listening)
	}
	return len(p), nil
}

// String is everything said so far, in one line.
func (b *messageBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(strings.Split(strings.TrimSpace(string(b.text)), "\n"), "; ")
}

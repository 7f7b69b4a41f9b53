package emu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"plait.dev/plait/lab/experiment"
)

// Argument is the only argument of a process that is to call Main.
const Argument = "lab-emu"

// Process is a running emulator. Its methods may be called from any goroutine.
type Process struct {
	cmd *exec.Cmd

	mu      sync.Mutex // one request at a time
	stdin   io.WriteCloser
	request *json.Encoder
	answer  *json.Decoder
}

// Start runs the emulator, which is this same program with Argument, and returns when all devices are there and up.
func Start(c Config) (*Process, error) {
	cmd := exec.Command("/proc/self/exe", Argument)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start emulator: %w", err)
	}
	p := &Process{cmd: cmd, stdin: stdin, request: json.NewEncoder(stdin), answer: json.NewDecoder(stdout)}
	if _, err := p.do(c); err != nil {
		return nil, errors.Join(fmt.Errorf("start emulator: %w", err), p.Close())
	}
	return p, nil
}

// do sends one line and reads its answer.
func (p *Process) do(line any) (answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var a answer
	if err := p.request.Encode(line); err != nil {
		return a, fmt.Errorf("ask emulator: %w", err)
	}
	if err := p.answer.Decode(&a); err != nil {
		return a, fmt.Errorf("read emulator's answer: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// Change gives a link its parameters, both directions complete; see Line.Change.
func (p *Process) Change(link string, forward, backward experiment.Direction, seed uint64) error {
	_, err := p.do(request{Change: &change{link, forward, backward, seed}})
	return err
}

// Blackhole silently drops all packets that enter in a direction (forward, backward, both) from now on; none ends it.
func (p *Process) Blackhole(link, direction string) error {
	_, err := p.do(request{Blackhole: &blackhole{link, direction}})
	return err
}

// Carrier takes the link down or up as both ends see it. While it is down nothing comes out of it.
func (p *Process) Carrier(link string, up bool) error {
	_, err := p.do(request{Carrier: &carrier{link, up}})
	return err
}

// Stats are the counters of all links by name.
func (p *Process) Stats() (map[string]Stats, error) {
	a, err := p.do(request{Stats: &struct{}{}})
	return a.Stats, err
}

// Close ends the emulator, and with it the devices: it ends when its input does.
func (p *Process) Close() error {
	p.stdin.Close()
	return p.cmd.Wait()
}

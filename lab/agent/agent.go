package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
)

// memoryBytes is when the garbage collector starts. Applications are in this process, on the guest's one processor, and what is measured has been late by 0.9 ms
// because of the collector.
const memoryBytes = 256 << 20

// readJob reads what the host asks for.
func readJob(p *ports) (*Job, error) {
	data, err := p.readFile(JobFile)
	if err != nil {
		return nil, err
	}
	var j Job
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, fmt.Errorf("read job: %w", err)
	}
	return &j, nil
}

// work carries out jobs until one is not only a preparation. n is the topology a job before has prepared.
func work(p *ports, h host) error {
	var n *network
	for {
		p.pause()
		job, err := readJob(p)
		if err != nil {
			return err
		}
		prepare := job.Prepare
		if prepare == nil && n == nil {
			if prepare, err = NewNetwork(job.Spec); err != nil {
				return err
			}
		}
		if prepare != nil {
			quiet := h.speak()
			n, err = build(prepare, h)
			quiet()
			if err != nil {
				return errors.Join(starved(), err)
			}
		}
		if job.Prepare != nil {
			continue
		}
		c, err := newCell(n, job.Spec, job.Seed, h)
		if err != nil {
			return err
		}
		if job.Shell != nil {
			return job.Shell.run(c)
		}
		out, files, err := c.run()
		if err = errors.Join(starved(), err); err != nil {
			return err
		}
		h.sendCell(out, files)
		return nil
	}
}

// Main is the guest's init: boot, be saved, work, end the machine.
func Main() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryBytes)
	p, err := openPorts()
	if err != nil {
		panic(fmt.Errorf("open the line to the host: %w", err)) // the host reads it on the console
	}
	defer p.end()
	h := host{p}
	if err := boot(); err != nil {
		h.send(Message{Invalid: "boot: " + err.Error()})
		return
	}
	h.send(Message{Boot: release()})
	if err := work(p, h); err != nil {
		h.send(Message{Invalid: err.Error()})
	}
}

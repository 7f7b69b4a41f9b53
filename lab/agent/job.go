// Package agent is the guest's side of the lab: the init process of the virtual machine. It builds an experiment's
// topology from network namespaces, runs its applications and timeline, measures, and reports to the host.
//
// It runs nowhere else: it takes the machine over and ends by powering it off.
package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// JobFile is the fw_cfg file the host puts the job into.
const JobFile = "opt/plait/job"

// Job is what the host asks the guest to do next.
type Job struct {
	// Prepare is to be built and waited for until it is ready; then the machine asks to be saved, and the next job runs in it. There is nothing else in this one.
	Prepare *Network `json:"prepare,omitempty"`
	// Shell gives an interactive shell on the console once the topology is ready, instead of running the applications.
	Shell *Shell `json:"shell,omitempty"`
	// Spec is the resolved experiment of one cell, Seed the seed of its random processes.
	Spec *experiment.Spec `json:"spec,omitempty"`
	Seed int              `json:"seed,omitempty"`
}

// Message is one line from the guest to the host. One field is set; none says that the guest goes on.
type Message struct {
	// Boot says that the machine has booted, with its kernel's release.
	Boot string `json:"boot,omitempty"`
	// AtS is the cell's virtual time so far, sent about once a second.
	AtS float64 `json:"at_s,omitempty"`
	// Doing says in words what takes time before the cell's own time starts.
	Doing string `json:"doing,omitempty"`
	// Cell is the result, gzipped JSON of result.Cell.
	Cell []byte `json:"cell,omitempty"`
	// File is a capture.
	File *File `json:"file,omitempty"`
	// Invalid says which precondition failed.
	Invalid string `json:"invalid,omitempty"`
}

// File is a capture, gzipped.
type File struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// host is the line to it.
type host struct{ ports *ports }

func (h host) send(m Message) {
	line, err := json.Marshal(m)
	if err != nil {
		line, _ = json.Marshal(Message{Invalid: fmt.Sprintf("encode message: %v", err)})
	}
	_, _ = h.ports.Write(append(line, '\n'))
}

// speak tells the host every second that the guest goes on, while what it does may take long without a word.
func (h host) speak() (quiet func()) {
	ctx, quiet := context.WithCancel(context.Background())
	go func() {
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for {
			select {
			case <-second.C:
				h.send(Message{})
			case <-ctx.Done():
				return
			}
		}
	}()
	return quiet
}

// sendCell sends the result and the captures.
func (h host) sendCell(cell *result.Cell, files map[string][]byte) {
	data, err := json.Marshal(cell)
	if err != nil {
		h.send(Message{Invalid: fmt.Sprintf("encode result: %v", err)})
		return
	}
	for _, name := range sortedKeys(files) {
		h.send(Message{File: &File{Name: name, Data: compress(files[name])}})
	}
	h.send(Message{Cell: compress(data)})
}

func compress(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

// Expand undoes the compression of a message's data.
func Expand(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// seconds since the origin, rounded to microseconds.
func seconds(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }

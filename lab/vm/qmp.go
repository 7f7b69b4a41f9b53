package vm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// qmp speaks the QEMU Machine Protocol over the emulator's standard input and output.
type qmp struct {
	in     io.Writer
	events chan qmpMessage
	answer chan qmpMessage
}

type qmpMessage struct {
	Event string `json:"event"`
	Data  struct {
		Reason string `json:"reason"` // why it shuts down: guest-shutdown, guest-reset, ...
	} `json:"data"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

// newQMP reads messages until the emulator ends, then closes both channels.
func newQMP(in io.Writer, out io.Reader) *qmp {
	q := &qmp{in: in, events: make(chan qmpMessage, 64), answer: make(chan qmpMessage, 1)}
	go func() {
		defer close(q.events)
		defer close(q.answer)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var m qmpMessage
			if json.Unmarshal(lines.Bytes(), &m) != nil {
				continue
			}
			switch {
			case m.Event != "":
				q.events <- m
			case m.Return != nil || m.Error != nil:
				q.answer <- m
			}
		}
	}()
	return q
}

// command sends one command and waits for its answer, which it stores in result unless that is nil.
func (q *qmp) command(name string, arguments, result any) error {
	request, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{name, arguments})
	if err != nil {
		return fmt.Errorf("encode qmp %s: %w", name, err)
	}
	if _, err := q.in.Write(append(request, '\n')); err != nil {
		return fmt.Errorf("send qmp %s: %w", name, err)
	}
	m, ok := <-q.answer
	switch {
	case !ok:
		return fmt.Errorf("qmp %s: the emulator ended", name)
	case m.Error != nil:
		return fmt.Errorf("qmp %s: %s", name, m.Error.Desc)
	case result != nil:
		return json.Unmarshal(m.Return, result)
	}
	return nil
}

// wait returns when the event comes, or an error when the guest crashes or the emulator ends first.
func (q *qmp) wait(event string) error {
	for e := range q.events {
		switch {
		case e.Event == "SHUTDOWN" && e.Data.Reason == "guest-reset": // what the kernel does after a panic
			return &Crash{"its kernel or its init process crashed"}
		case e.Event == event:
			return nil
		}
	}
	return fmt.Errorf("wait for %s: the emulator ended", event)
}

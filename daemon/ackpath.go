package daemon

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// acks is the lever ackpath: a receiver, if the configuration has one, and a sender, wherever the lever congestion is on.
type acks struct {
	ackLog
	kernel ackKernel // nil: this kernel cannot
	fair   bool      // the congestion control corrects for copies
	lacks  string    // why not, if kernel is nil
	port   uint16

	changing sync.Mutex // guards what follows
	config   Config
	receiver *ackReceiver // nil: off
	sender   *ackSender   // nil: hellos are not answered
	silent   string       // why they are not
}

// openAcks loads what the lever needs in the kernel, while the daemon may. Where the kernel cannot, plait does without.
func openAcks(c Config, k *kernel, log io.Writer) *acks {
	a := &acks{port: uint16(c.Ackpath.Port)}
	a.out, a.ration = log, newRation("plait ackpath status has what is now")
	programs, fair, err := openAckPrograms(k, a.port)
	if err == nil {
		if err = programs.probeTCX(); err != nil {
			programs.Close()
		}
	}
	if err != nil {
		a.lacks = firstLine(err)
		return a
	}
	a.kernel, a.fair = programs, fair
	return a
}

// ackLog writes lines, if there are not too many.
type ackLog struct {
	out    io.Writer
	mu     sync.Mutex // guards what follows
	ration ration
}

func (l *ackLog) logf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.ration.take(time.Now(), fmt.Sprintf(format, args...)); line != "" {
		fmt.Fprintf(l.out, "ackpath: %s\n", line)
	}
}

// configure puts a configuration in force, also another one later. What cannot be done is said, and done without. Without the lever there is nothing to do.
func (a *acks) configure(c Config) {
	if a == nil {
		return
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	a.config = c
	mode := c.Ackpath.Mode
	if a.kernel == nil {
		if mode != Off {
			a.logf("no ACKs are copied: %s", a.lacks)
		}
		return
	}
	switch {
	case mode == Off && a.receiver != nil:
		if err := a.receiver.close(); err != nil {
			a.logf("%v", err)
		}
		a.receiver = nil
	case mode != Off && a.receiver == nil:
		a.receiver = newAckReceiver(a.kernel, a.port, a.logf)
		a.receiver.running.Go(a.receiver.heed)
		a.receiver.running.Go(a.receiver.run)
	}
	if a.receiver != nil {
		a.receiver.set(mode, c.Ackpath.Ratio)
	}
	answers := c.answers()
	a.silent = ""
	switch {
	case !answers && a.sender != nil:
		if err := a.sender.close(); err != nil {
			a.logf("%v", err)
		}
		a.sender = nil
	case answers && a.sender == nil:
		s := newAckSender(a.kernel, a.fair, a.logf)
		if err := s.start(a.port); err != nil {
			a.silent = err.Error()
			a.logf("%v", err)
			break
		}
		a.sender = s
	}
}

// close ends all copies and takes the programs out of the kernel. Without the lever there is nothing to do.
func (a *acks) close() error {
	if a == nil || a.kernel == nil {
		return nil
	}
	a.changing.Lock()
	receiver, sender := a.receiver, a.sender
	a.receiver, a.sender = nil, nil
	a.changing.Unlock()
	var errs []error
	if receiver != nil {
		errs = append(errs, receiver.close())
	}
	if sender != nil {
		errs = append(errs, sender.close())
	}
	return errors.Join(append(errs, a.kernel.Close())...)
}

package cp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxOpen is how many entries may wait for the receiver's answer: enough for a round trip of 1 s at 1000 files a second.
const maxOpen = 1024

// sender offers entries and sends the files that are wanted.
type sender struct {
	s        *stream
	sources  []string
	absent   []bool // there is nothing of a source at the receiver
	progress *Progress
	met      siblings // by the walk
	counting sync.Mutex
	counted  bool // by the walk

	mu      sync.Mutex
	changed sync.Cond
	open    map[uint64]offered // entries without a final answer
	wanted  []wanted
	waited  time.Duration // by runData, for leases that nobody gave up
	walked  bool          // there are no more entries
	err     error         // ends everything
	over    bool          // runSender has returned
}

// wanted is a file to send.
type wanted struct {
	want
	unasked bool // there is nothing of it at the receiver, which waits for it
}

// offered is an entry and where it is.
type offered struct {
	entry
	file   string
	wanted bool // its bytes are counted as it is sent
}

// runSender copies the sources to the receiver at the other end.
func runSender(s *stream, sources []string, absent []bool, p *Progress) error {
	se := &sender{s: s, sources: sources, absent: absent, progress: p, open: map[uint64]offered{}}
	se.changed.L = &se.mu
	defer se.end()
	go se.runWalk()
	heard := make(chan error, 1)
	go func() {
		err := se.runHear()
		se.fail(err)
		heard <- err
	}()
	err := se.runData()
	if err == nil {
		return <-heard
	}
	se.fail(err)
	select {
	case said := <-heard: // why the receiver has gone says more than that it has
		return cmp.Or(said, err)
	case <-time.After(time.Second):
		return err
	}
}

func (se *sender) fail(err error) {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.err == nil && err != nil {
		se.err = err
	}
	se.changed.Broadcast()
}

// end keeps the others, which may wait for a slow disk, from saying more to who believes that the copy is over.
func (se *sender) end() {
	se.mu.Lock()
	defer se.mu.Unlock()
	se.over = true
}

// ended reports whether nobody is interested any more.
func (se *sender) ended() bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return se.err != nil || se.over
}

func (se *sender) report(p Problem) {
	se.mu.Lock()
	defer se.mu.Unlock()
	if !se.over {
		se.progress.tell(p)
	}
}

// runHear takes the receiver's answers until it says goodbye.
func (se *sender) runHear() error {
	var buf []byte
	for {
		if se.s.idle() {
			se.changed.Broadcast() // the others see to all that has been said at once
		}
		kind, body, err := se.s.next(&buf)
		if err != nil {
			return err
		}
		switch kind {
		case msgWant:
			w, err := decode[want](kind, body)
			if err != nil {
				return err
			}
			se.mu.Lock()
			se.wanted = append(se.wanted, wanted{w, false})
			if o, ok := se.open[w.ID]; ok {
				o.wanted = true
				se.open[w.ID] = o
			}
			excess := len(se.wanted) > 2*maxOpen || len(w.Sum) > sha256.Size
			se.mu.Unlock()
			if excess {
				return errBroken
			}
		case msgKept:
			k, err := decode[kept](kind, body)
			if err != nil {
				return err
			}
			if err := se.settle(k.ID, outcomeOf(k.Before)); err != nil {
				return err
			}
		case msgProblem:
			p, err := decode[problem](kind, body)
			if err != nil {
				return err
			}
			if p.Ends {
				return &endedError{p.Path, p.Why, true}
			}
			if p.Why != "" {
				se.report(Problem{p.Path, p.Why, p.Fine, true})
			}
			if p.ID == 0 {
				continue
			}
			if err := se.settle(p.ID, failed); err != nil {
				return err
			}
		case msgBye:
			return se.leave()
		default:
			return fmt.Errorf("%w: message %q from the receiver", errBroken, kind)
		}
	}
}

// leave takes a goodbye. Nobody would hear the answers that are waited for after an early one.
func (se *sender) leave() error {
	se.mu.Lock()
	defer se.mu.Unlock()
	if !se.walked || len(se.open) > 0 {
		return fmt.Errorf("%w: goodbye before the end", errBroken)
	}
	return nil
}

// settle closes an entry.
func (se *sender) settle(id uint64, how outcome) error {
	se.mu.Lock()
	o, ok := se.open[id]
	delete(se.open, id)
	se.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w: an answer to nothing", errBroken)
	}
	if o.Kind == isFile {
		se.progress.settle(how)
		if how == before && !o.wanted {
			se.progress.Bytes.Add(o.Size)
		}
	}
	return nil
}

// outcome is what became of a file.
type outcome int

const (
	copied outcome = iota
	before         // it was there
	failed
)

func outcomeOf(there bool) outcome {
	if there {
		return before
	}
	return copied
}

// settle counts a file that is done with.
func (p *Progress) settle(how outcome) {
	p.Files.Add(1)
	switch how {
	case copied:
		p.Copied.Add(1)
	case before:
		p.Kept.Add(1)
	}
}

// runData sends the files that are wanted until there are no more.
func (se *sender) runData() error {
	for {
		se.mu.Lock()
		if len(se.wanted) == 0 {
			se.mu.Unlock()
			if err := se.s.flush(); err != nil {
				return err
			}
			se.mu.Lock()
		}
		for len(se.wanted) == 0 && se.err == nil && (len(se.open) > 0 || !se.walked) {
			se.changed.Wait()
		}
		if se.err != nil || len(se.wanted) == 0 {
			err := se.err
			se.mu.Unlock()
			return err
		}
		w := se.wanted[0]
		se.wanted = se.wanted[1:]
		se.changed.Broadcast()
		o, ok := se.open[w.ID]
		se.mu.Unlock()
		if !ok && w.unasked { // the receiver has refused it since
			if err := errors.Join(se.s.send(msgBegin, begin{ID: w.ID}), se.s.send(msgDone, done{Broken: true})); err != nil {
				return err
			}
			continue
		}
		if !ok || o.Kind != isFile || w.Offset < 0 || w.Offset > o.Size {
			return fmt.Errorf("%w: it wants what was not offered", errBroken)
		}
		if err := se.sendFile(o, w.want); err != nil {
			return err
		}
	}
}

// sendFile sends one file. What goes wrong with the file is told; an error is the connection's.
func (se *sender) sendFile(o offered, w want) error {
	f, err := se.openFile(o)
	if err != nil {
		return se.leaveOut(o, w, err)
	}
	defer f.Close()
	began, err := stat(f)
	from := int64(0)
	if err == nil {
		from, err = skip(f, w)
	}
	if err != nil {
		return se.leaveOut(o, w, err)
	}
	if err := se.s.send(msgBegin, begin{ID: w.ID, Offset: from}); err != nil {
		return err
	}
	se.progress.Bytes.Add(from)
	b := body{file: f, progress: se.progress}
	for left := o.Size - from; left > 0 && b.err == nil; left -= bodyBytes {
		if !se.isOpen(w.ID) { // the receiver has given it up
			return se.s.send(msgDone, done{Broken: true})
		}
		if err := se.s.sendData(&b, min(left, bodyBytes)); err != nil {
			return err
		}
	}
	if b.err != nil && !errors.Is(b.err, io.EOF) && !errors.Is(b.err, io.ErrUnexpectedEOF) {
		return se.abandon(o, b.err)
	}
	more := o.Size == 0 && hasMore(f)
	ended, err := stat(f)
	if info, bad := f.Stat(); err != nil || bad != nil || !o.is(info) || rewritten(began, ended) {
		return se.abandon(o, errChanged)
	}
	if b.err != nil || more {
		return se.abandon(o, errNoSize)
	}
	return se.s.send(msgDone, done{Sum: b.sum})
}

func (se *sender) isOpen(id uint64) bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	_, ok := se.open[id]
	return ok
}

// leaveOut is sendFile for a file that cannot be read now. What the receiver has of it stays.
func (se *sender) leaveOut(o offered, w want, err error) error {
	if err := se.s.send(msgBegin, begin{ID: w.ID, Offset: w.Offset}); err != nil {
		return err
	}
	return se.abandon(o, err)
}

// abandon breaks a file off that has begun.
func (se *sender) abandon(o offered, err error) error {
	if err := se.tell(o.file, err); err != nil {
		return err
	}
	return se.s.send(msgDone, done{Broken: true})
}

// A file server may have a file for itself while a client of its writes it (F_WRLCK of F_SETLEASE). The first attempt to open it asks for it; the server has leaseWait to write what
// it holds back, and is asked every leasePause whether it has.
const (
	leaseWait  = 10 * time.Second
	leasePause = 50 * time.Millisecond
)

// openFile opens what was offered, and waits where another program must give it up first, as long as the copy lives. Who gives up none in leaseWait is not waited for again, file by file.
func (se *sender) openFile(o offered) (*os.File, error) {
	for leased := false; ; leased = true {
		f, err := o.open()
		if err == nil && leased {
			se.waited = 0
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return f, err
		}
		if se.ended() || se.waited > leaseWait {
			return nil, errLeased
		}
		time.Sleep(leasePause)
		se.waited += leasePause
	}
}

// tick is more than the coarsest of the kernel's clocks for files (4 ms with CONFIG_HZ=250, 10 ms with 100).
const tick = 20 * time.Millisecond

// open opens what was offered. It does not wait for the other end of a pipe, nor follow a link, that has come in its place. Two changes within one
// tick of the kernel's clock look like one, so a file that has just been changed is read a moment later.
func (o offered) open() (*os.File, error) {
	f, err := openSource(o.file, unix.O_NONBLOCK)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errVanished
	case errors.Is(err, syscall.ENXIO): // a socket
		return nil, errChanged
	case err != nil:
		return nil, err
	}
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		f.Close()
		return nil, errChanged
	}
	if age := time.Since(o.MTime.time()); age >= 0 && age < tick {
		time.Sleep(tick - age)
	}
	return f, nil
}

// is reports whether a file still is as it was offered.
func (o offered) is(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() == o.Size && momentOf(info.ModTime()) == o.MTime
}

// hasMore reports whether anything follows in a file.
func hasMore(f *os.File) bool {
	n, _ := f.Read(make([]byte, 1))
	return n > 0
}

func stat(f *os.File) (s unix.Stat_t, err error) {
	err = call("stat", f.Name(), func() error { return unix.Fstat(int(f.Fd()), &s) })
	return s, err
}

// rewritten reports whether a file of the same size and time may have been written to: some programs give it its old time again, but none can set when the kernel
// last saw it change. A file that lost its name, or got another one, changed in that only.
func rewritten(before, after unix.Stat_t) bool {
	return before.Nlink == after.Nlink && before.Ctim != after.Ctim
}

// skip goes to the first byte to send: after what the receiver has already if that is the same, or to the beginning.
func skip(f *os.File, w want) (int64, error) {
	if w.Offset == 0 {
		return 0, nil
	}
	sum := sha256.New()
	n, err := io.CopyN(sum, f, w.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if n == w.Offset && bytes.Equal(sum.Sum(nil), w.Sum) {
		return n, nil
	}
	_, err = f.Seek(0, io.SeekStart)
	return 0, err
}

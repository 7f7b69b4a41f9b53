package cp

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Files of a source that is absent come unasked, those as well that the receiver has refused by then, and after the end of the entries.
func TestRefusedUnasked(t *testing.T) {
	var sent bytes.Buffer
	s := newStream(&sent, nil)
	for _, e := range []entry{{ID: 1, Kind: isDir, Mode: 0o755}, {ID: 2, Path: "no\x00name", Kind: isDir}, {ID: 3, Path: "no\x00name/f", Kind: isFile, Size: 1}, {ID: 4, Path: "g", Kind: isFile, Size: 2, Mode: 0o644}} {
		_ = s.send(msgEntry, e)
	}
	_ = s.send(msgEnd, struct{}{})
	se := &sender{s: s, walked: true, open: map[uint64]offered{}, wanted: []wanted{{want{ID: 3}, true}}, progress: NewProgress(func(Problem) {})}
	if err := se.runData(); err != nil {
		t.Fatal(err)
	}
	_ = s.send(msgBegin, begin{ID: 4})
	sendBytes(s, "gg")
	_ = s.send(msgDone, done{Sum: crc32.Checksum([]byte("gg"), castagnoli)})
	_ = s.flush()
	dir := t.TempDir()
	p := NewProgress(func(Problem) {})
	r := request{Names: []string{"x"}, To: dir, Into: true, Absent: []bool{true}}
	var answers bytes.Buffer
	if err := runReceiver(newStream(struct {
		io.Reader
		io.Writer
	}{&sent, &answers}, nil), r, p); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "x", "g")); string(b) != "gg" || err != nil || p.Copied.Load() != 1 || p.Failures() != 1 || sent.Len() != 0 {
		t.Errorf("%q, %v, %d copied, %d problems, %d bytes not read", b, err, p.Copied.Load(), p.Failures(), sent.Len())
	}
	if bytes.ContainsRune(answers.Bytes(), msgWant) {
		t.Errorf("the receiver asks: %q", answers.Bytes())
	}
}

// A receiver that says goodbye while something is open ends the copy, which would wait for its answers without an end.
func TestEarlyBye(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "content")
	for name, after := range map[string]byte{"at once": msgRequest, "with an entry open": msgEnd} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			go func() {
				s := newStream(far, nil)
				for buf := []byte(nil); ; {
					kind, _, err := s.next(&buf)
					if err != nil {
						return
					}
					if kind == after {
						go func() { _, _ = s.send(msgBye, struct{}{}), s.flush() }()
					}
				}
			}()
			ended := make(chan error, 1)
			go func() { ended <- Push(near, []string{file}, "x", Options{}, NewProgress(func(Problem) {})) }()
			select {
			case err := <-ended:
				if !errors.Is(err, errBroken) {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("the copy goes on")
			}
		})
	}
}

// However many files of an absent source are refused while a large one is being sent, the copy goes on.
func TestManyRefusedUnasked(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, make([]byte, 4<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(big)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	defer near.Close()
	if err := near.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	received := make(chan error, 1)
	go func() {
		r := request{Names: []string{"x"}, To: filepath.Join(dir, "to"), Into: true, Absent: []bool{true}}
		received <- runReceiver(newStream(far, nil), r, NewProgress(func(Problem) {}))
	}()
	p := NewProgress(func(Problem) {})
	se := &sender{s: newStream(near, nil), absent: []bool{true}, open: map[uint64]offered{}, progress: p}
	se.changed.L = &se.mu
	heard, sent := make(chan error, 1), make(chan error, 1)
	go func() { heard <- se.runHear() }()
	go func() { sent <- se.runData() }()
	entries := []entry{{Kind: isDir, Mode: 0o755}, {Path: "big", Kind: isFile, Size: info.Size(), MTime: momentOf(info.ModTime()), Mode: 0o644}, {Path: "no\x00name", Kind: isDir}}
	for i := range 5 * maxOpen {
		entries = append(entries, entry{Path: fmt.Sprint("no\x00name/", i), Kind: isFile, Size: 1})
	}
	for i, e := range entries {
		e.ID = uint64(i + 1)
		if err := se.offer(offered{entry: e, file: big}); err != nil {
			t.Fatal(err)
		}
	}
	se.mu.Lock()
	se.walked = true
	se.changed.Broadcast()
	se.mu.Unlock()
	if err := errors.Join(se.s.send(msgEnd, struct{}{}), se.s.flush(), <-sent, <-heard, <-received); err != nil || p.Copied.Load() != 1 {
		t.Errorf("%v, %d copied", err, p.Copied.Load())
	}
}

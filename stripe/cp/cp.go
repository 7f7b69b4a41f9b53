// Package cp copies files and directories over a connection: content is verified, what is there already is not sent again,
// and what was interrupted goes on where it stopped.
//
// A file is written beside its destination under the name .plait-part-…, and takes its place when all of it is there and has
// the right sum: nobody ever sees half a file. Interrupted, the part stays; the next copy of the file sends the SHA-256 of what it
// has, and the sender goes on from there if its own file begins with the same bytes. A small file that is new has no name at all
// before it has its own.
//
// The receiver writes below its destination only, whatever the sender asks for ([os.Root], and folder).
package cp

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"plait.dev/plait/stripe"
)

// Options are for both directions.
type Options struct {
	// Checksum compares files that are there already by their content. Otherwise, one of the same size and time of change (to
	// the nanosecond, or as coarser file systems keep it) counts as the same.
	Checksum bool
}

// Progress is what has been done so far. It may be read at any time.
type Progress struct {
	Files, TotalFiles atomic.Uint64 // settled: copied, there before, or failed
	Bytes, TotalBytes atomic.Int64  // of the files' content; those that were there before count
	Copied, Kept      atomic.Uint64 // files that were sent, and that were there before
	SentBytes         atomic.Int64  // content that went over the connection
	TotalKnown        atomic.Bool   // the sender has seen all of its files
	telling           sync.Mutex
	onProblem         func(Problem)
	started           time.Time
	failures          atomic.Uint64
}

// NewProgress returns a Progress whose problems are told as they happen, one at a time, by any goroutine.
func NewProgress(onProblem func(Problem)) *Progress {
	return &Progress{onProblem: onProblem, started: time.Now()}
}

// Failures is how many problems were told, without the fine ones.
func (p *Progress) Failures() uint64 { return p.failures.Load() }

// Push copies files of this host to the other end of conn, which runs [Serve]. A problem with one of them does not keep the others
// from being copied; the error is about the whole.
func Push(conn net.Conn, sources []string, to string, opt Options, p *Progress) error {
	names := make([]string, len(sources))
	for i, s := range sources {
		name, err := nameThere(s)
		if err != nil {
			return err
		}
		names[i] = name
	}
	s := newStream(conn, nil)
	r := request{Names: names, To: to, Into: len(sources) > 1 || strings.HasSuffix(to, "/"), Checksum: opt.Checksum}
	if err := s.send(msgRequest, r); err != nil {
		return err
	}
	return runSender(s, sources, nil, p)
}

// Pull copies files of the other end, which runs [Serve], to this host. It is for programs that embed this package: a [Job] asks with the first line that ssh carries, a round trip
// sooner.
func Pull(conn net.Conn, sources []string, to string, opt Options, p *Progress) error {
	r, err := asked(sources, to, opt)
	if err != nil {
		return err
	}
	s := newStream(conn, nil)
	if err := s.send(msgRequest, r); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	return receiveAll(s, r, to, p)
}

// asked is what a pull asks for.
func asked(sources []string, to string, opt Options) (request, error) {
	r := request{Send: true, Sources: sources, Into: len(sources) > 1 || strings.HasSuffix(to, "/"), Checksum: opt.Checksum}
	to, err := destination(to)
	if err != nil {
		return r, err
	}
	for _, s := range sources {
		name, err := nameHere(s, len(sources) == 1)
		if err != nil {
			return r, err
		}
		r.Names = append(r.Names, name)
	}
	info, err := os.Stat(to)
	within := err == nil && info.IsDir() && !isMarked(to, r.Names) || r.Into
	for _, name := range r.Names {
		at := to
		if within {
			at = join(to, name)
		}
		dir, base := split(at)
		r.Absent = append(r.Absent, !there(at) && !there(join(dir, partOf(base))))
	}
	return r, nil
}

// nameOf is the name a source has at its destination. The home directory has none, as the current one: a directory called ~ would be a trap
// for who removes it.
func nameOf(source string) string {
	if source == "~" || strings.HasPrefix(source, "~/") {
		source = "." + source[1:]
	}
	return lastOf(source)
}

// lastOf is the last name in a path, .. too; of one without any it is . or /.
func lastOf(file string) string {
	for _, name := range slices.Backward(strings.Split(file, "/")) {
		if name != "" && name != "." {
			return name
		}
	}
	if strings.HasPrefix(file, "/") {
		return "/"
	}
	return "."
}

// nameThere is the name a source of this host has at the other end: that of the directory itself, if it is written as . or so. What is above a link is not what its letters say.
func nameThere(source string) (string, error) {
	name := lastOf(source)
	if name != "." && name != ".." {
		return name, nil
	}
	here, err := os.Getwd()
	if err != nil || name == "." {
		return filepath.Base(here), err
	}
	if !filepath.IsAbs(source) {
		source = here + "/" + source
	}
	if top, err := filepath.EvalSymlinks(source); err == nil {
		return filepath.Base(top), nil
	}
	return filepath.Base(filepath.Clean(source)), nil // the walk tells
}

// nameHere is the name a source of the other end has at this one. What is in one without a name goes into the destination, where no name is compared with those of other sources.
func nameHere(source string, alone bool) (string, error) {
	name := nameOf(source)
	if name == ".." || name == "/" {
		return "", fmt.Errorf("%s: has no name to give it here; name the directory itself", source)
	}
	if name == "." && !alone {
		return "", fmt.Errorf("%s: has no name here, so what is in it could take the place of other sources; copy it alone, or name the directory itself", cmp.Or(source, "."))
	}
	return name, nil
}

func there(file string) bool {
	_, err := os.Lstat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// receiveAll receives what was asked for.
func receiveAll(s *stream, r request, to string, p *Progress) error {
	r.To = to
	return runReceiver(s, r, p)
}

// Serve does what Push or Pull at the other end of conn asks for, and returns when that is done. What the user hears of at the other end is no
// error here. What the other end said before there was conn comes first.
func Serve(conn net.Conn, first []byte) error {
	err := serve(newStream(conn, first))
	_ = conn.SetWriteDeadline(time.Time{}) // the receiver's last word may not have gone yet (mute)
	if errors.As(err, new(*endedError)) || errors.Is(err, stripe.ErrClosedByPeer) || errors.Is(err, stripe.ErrSpent) {
		return nil
	}
	return err
}

func serve(s *stream) error {
	var buf []byte
	kind, body, err := s.next(&buf)
	if err != nil {
		return err
	}
	if kind != msgRequest {
		return fmt.Errorf("the other end begins with message %q", kind)
	}
	r, err := decode[request](kind, body)
	if err != nil {
		return err
	}
	silent := NewProgress(func(Problem) {}) // the near side hears of everything
	if r.Send {
		for i := range r.Sources {
			if r.Sources[i], err = home(r.Sources[i]); err != nil {
				return err
			}
		}
		return runSender(s, r.Sources, r.Absent, silent)
	}
	return runReceiver(s, r, silent)
}

// home is a path without ~ in front; paths are relative to the home directory anyway where ssh starts a program. Nothing is the
// current directory. The rest is left to the kernel: what is above a link is not what its letters say.
func home(file string) (string, error) {
	if file != "~" && !strings.HasPrefix(file, "~/") {
		return cmp.Or(file, "."), nil
	}
	dir, err := os.UserHomeDir()
	return dir + file[1:], err
}

// destination is where to copy to, without a slash at its end.
func destination(to string) (string, error) {
	to, err := home(to)
	return cmp.Or(strings.TrimRight(to, "/"), "/"), err
}

// split takes a path apart at its last slash, as [filepath.Dir] and [filepath.Base] do, but for .. in it, which stays.
func split(file string) (dir, name string) {
	dir, name = filepath.Split(file)
	if dir == "" {
		return ".", name
	}
	return cmp.Or(strings.TrimRight(dir, "/"), "/"), name
}

// join is [filepath.Join], but for .. in the directory, which stays.
func join(dir, name string) string {
	switch {
	case name == ".":
		return dir
	case dir == ".":
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

// errBroken is a peer that does not keep to the protocol.
var errBroken = errors.New("the other end breaks the protocol")

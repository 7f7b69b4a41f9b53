package cp

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"plait.dev/plait/stripe/internal/printable"
)

// Problem is something that was not copied.
type Problem struct {
	Path string
	Why  string // and what to do
	Fine bool   // it is no failure: a socket, for example
	Far  bool   // the path is at the other end
}

func (p *Progress) tell(problem Problem) {
	if !problem.Fine {
		p.failures.Add(1)
	}
	p.telling.Lock()
	defer p.telling.Unlock()
	p.onProblem(problem)
}

// endedError is why no more can be copied although the connection works: there is no room, or no such directory. It says what to do.
type endedError struct {
	path, why string
	far       bool // the path is at the other end
}

func (e *endedError) Error() string { return printable.Text(e.path + ": " + e.why) }

var (
	errNotCopied = errors.New("neither file, directory nor link: not copied")
	errPart      = errors.New("is what an interrupted copy has left: not copied; run that copy again, or remove it")
	errNoFile    = errors.New("neither file nor directory: cannot be copied; plait pipe carries what a program writes")
	errNoSize    = errors.New("has another size than it says, as files of the kernel's do, in /proc for instance: cannot be copied; plait pipe carries what a program writes")
	errNowhere   = errors.New("a link to what is not there, or to a pipe: cannot be copied; plait pipe carries what a program writes")
	errRing      = errors.New("a link that leads back to itself: cannot be copied")
	errTwin      = errors.New("has the name of another one here but for upper and lower case, which this file system does not tell apart: not copied; rename it, or copy it to another directory")
	errPattern   = errors.New("no such file or directory; * ? [ are not expanded here: name the directory, or each file")
	errInTheWay  = errors.New("a device, pipe or socket is there, and stays; remove it, or copy to another name")
	errChanged   = errors.New("changed while it was copied; run the same command again to have it as it is now")
	errLeased    = errors.New("another program has it for itself (a lease), as file servers have what their clients write, and has not given it up when asked; run the same command again, or end that program")
	errVanished  = errors.New("was removed since the copy began")
	errNoLocks   = errors.New("the file system has no locks")
)

// advice is the cause of an error and what to do. need is what must be allowed.
func advice(err error, need string) string {
	switch {
	case full(err):
		return cause(err) + "; make room and run the same command again, it goes on where it stopped"
	case errors.Is(err, fs.ErrPermission):
		return cause(err) + "; the user who copies must be allowed to " + need
	case errors.Is(err, syscall.EROFS):
		return cause(err) + "; copy to another directory"
	case errors.Is(err, errNoLocks):
		return cause(err) + "; they keep two copies from writing one file. Mount it with locks (NFS: run rpc.statd, or nolock; Lustre: flock), or copy to another file system"
	}
	return cause(err)
}

// hopeless reports whether other files would meet an error, too.
func hopeless(err error) bool { return full(err) || errors.Is(err, errNoLocks) }

// full reports whether an error is a want of room.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// absent says so of a directory that is needed.
func absent(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no such file or directory: make %s first", dir)
	}
	return err
}

// cause is an error without the path it names.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Op + ": " + p.Err.Error()
	}
	return err.Error()
}

package cp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/ssh"
)

// Job is a copy between this host and another one.
type Job struct {
	Host    string   // as ssh names it
	Pull    bool     // from there to here
	Sources []string // without the host
	To      string
	Options
	SSH ssh.Options
}

// ErrPartly is what Run ends with when the connection was good and something could not be copied.
var ErrPartly = errors.New("not everything was copied")

// Parse makes a job of the arguments of cp: sources, and a destination. Either all sources or the destination are at a host:
// host:path, user@host:path, or [address]:path. A colon after a slash belongs to a name. No two sources may have the same name: one would overwrite the other. A directory
// of another host that has none in its path is the only source.
func Parse(args []string) (Job, error) {
	if len(args) < 2 {
		return Job{}, errors.New("give what to copy, and where to: plait cp SRC... DST")
	}
	last := len(args) - 1
	var j Job
	toHost, to := operand(args[last])
	j.To = to
	named := map[string]string{}
	if i := slices.Index(args, ""); i >= 0 { // an unset variable, which would be this directory
		return j, fmt.Errorf("argument %d is empty, and no file has such a name; write . for this directory", i+1)
	}
	for _, a := range args {
		if err := misread(a); err != nil {
			return j, err
		}
	}
	for i, a := range args[:last] {
		host, source := operand(a)
		if host != "" && toHost != "" {
			return j, fmt.Errorf("%s and %s are both on other hosts; run plait cp on one of them, or, if %s is a file of this host, write ./%s", a, args[last], a, a)
		}
		if i > 0 && host != j.Host {
			return j, fmt.Errorf("%s and %s are on different hosts; copy from one at a time", args[0], a)
		}
		j.Host = host
		j.Sources = append(j.Sources, source)
		name, err := nameThere(source)
		if host != "" {
			name, err = nameHere(source, last == 1)
		}
		if err != nil {
			return j, err
		}
		if other, ok := named[name]; ok {
			return j, fmt.Errorf("%s and %s would both be %s in %s; copy them one at a time, to different places", other, a, name, args[last])
		}
		named[name] = a
	}
	if j.Host == "" && toHost == "" {
		return j, fmt.Errorf("%s and %s are both on this host; name the other one, as in user@host:path", args[0], args[last])
	}
	j.Pull = j.Host != ""
	if !j.Pull {
		j.Host = toHost
	}
	return j, nil
}

// operand takes apart host and path.
func operand(arg string) (host, path string) {
	i := strings.Index(arg, ":")
	if at := strings.Index(arg, "["); at >= 0 && (at == 0 || arg[at-1] == '@') {
		if end := strings.Index(arg, "]:"); end > at+1 { // [] is no host, and what follows no file of this one
			return arg[:at] + arg[at+1:end], arg[end+2:]
		}
	}
	if slash := strings.Index(arg, "/"); i <= 0 || slash >= 0 && slash < i {
		return "", arg
	}
	return arg[:i], arg[i+1:]
}

// farPath is a path of a host as operand takes it apart.
func farPath(host, path string) string {
	if at := strings.Index(host, "@") + 1; strings.Contains(host, ":") {
		host = host[:at] + "[" + host[at:] + "]"
	}
	return host + ":" + path
}

// misread reports an operand that says something else here than with other programs: an IPv6 address without brackets, or a path, of which the first
// number would be the host, and the home directory of another user, which only a shell knows.
func misread(arg string) error {
	user, rest, at := strings.Cut(arg, "@")
	if !at || strings.Contains(user, "/") {
		user, rest = "", arg
	}
	if user != "" {
		user += "@"
	}
	for i := len(rest) - 1; i > 0; i-- {
		if addr, err := netip.ParseAddr(rest[:i]); rest[i] == ':' && err == nil && addr.Is6() {
			return fmt.Errorf("%s: write an IPv6 address in brackets: %s[%v]:%s", arg, user, addr, rest[i+1:])
		}
	}
	if addr, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil && addr.Is6() && !strings.Contains(addr.Zone(), "]") { // a zone may be anything
		return fmt.Errorf("%s: an IPv6 address and no path: write %s[%v]: for the home directory there", arg, user, addr)
	}
	if host, path := operand(arg); host != "" && strings.HasPrefix(path, "~") && path != "~" && !strings.HasPrefix(path, "~/") {
		return fmt.Errorf("%s: only ~ alone is a home directory here, that of the user who logs in; write the whole path of another one's, or %s if that is the file's name", arg, farPath(host, "./"+path))
	}
	return nil
}

// connect starts the far side, and connects to it. A pull asks with it.
func (j *Job) connect(ctx context.Context) (conn *ssh.Conn, ask request, err error) {
	if j.Pull {
		if ask, err = asked(j.Sources, j.To, j.Options); err != nil {
			return nil, ask, err
		}
		var first bytes.Buffer
		if err := message(&first, msgRequest, ask); err != nil {
			return nil, ask, err
		}
		j.SSH.First = first.Bytes()
	}
	conn, err = ssh.Dial(ctx, j.Host, j.SSH)
	return conn, ask, err
}

// Run copies, and tells out how it goes.
func (j Job) Run(ctx context.Context, out Reporter) error {
	conn, ask, err := j.connect(ctx)
	if err != nil {
		out.End(Snapshot{}, err)
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	p := NewProgress(func(p Problem) {
		if p.Far {
			p.Path = farPath(j.Host, p.Path)
		}
		out.Problem(p)
	})
	ended, reported := make(chan struct{}), make(chan struct{})
	go func() { defer close(reported); watch(conn.Conn, p, out, ended) }()
	if j.Pull {
		err = receiveAll(newStream(conn, nil), ask, j.To, p)
	} else {
		err = Push(conn, j.Sources, j.To, j.Options, p)
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Abort()
	} else {
		err = conn.Close()
	}
	close(ended)
	<-reported
	var known *endedError
	switch {
	case errors.As(err, &known) && known.far:
		known.path = farPath(j.Host, known.path)
	case known != nil:
	case err != nil:
		err = fmt.Errorf("%w; run the same command again, it goes on where it stopped", err)
	case p.Failures() > 0:
		err = ErrPartly
	}
	out.End(snapshot(conn.Conn, p), err)
	return err
}

// reportEvery is how often progress is told.
const reportEvery = 500 * time.Millisecond

// watch reports progress until it is over.
func watch(c *stripe.Conn, p *Progress, out Reporter, ended <-chan struct{}) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			out.Progress(snapshot(c, p))
		}
	}
}

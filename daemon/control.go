package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

// Controlled is what the control socket is about.
type Controlled interface {
	Status() Status
	// Why returns an error that is ErrNoSocket if no connection goes by the name.
	Why(socket string) (SocketStatus, error)
	// Reload reads the configuration again and applies it. After an error the old one is in force.
	Reload() error
	// Stop makes the daemon take everything back and end; it does not wait.
	Stop()
}

// ErrNotRunning is why nobody answers.
var ErrNotRunning = errors.New("plait is not up; start it with `plait up`")

// ErrNoAnswer is why nothing is known of what was asked for: it may have been done, or be done yet.
var ErrNoAnswer = errors.New("no answer")

// ErrFailed is why what the daemon was asked for is not done, or not whole, though it was asked for rightly: the kernel refuses it, or the daemon is of another version.
var ErrFailed = errors.New("plait failed")

// headerTimeout is how long a client may take to say what it wants, the first time and again.
const headerTimeout = 10 * time.Second

// answerTimeout is how long a client waits. Status and reload look at every socket: with 100,000 connections, on a host whose cores others take, that was 21 s.
const answerTimeout = 2 * time.Minute

// lastAnswers is how long the answers that are under way when plait goes down may take: a client that does not read must not keep it from ending.
const lastAnswers = 5 * time.Second

// stopTimeout is how long the daemon may take to take everything back, as in packaging/plait.service: full tables of four exits took 78 s on a busy machine.
const stopTimeout = 3 * time.Minute

// answer writes a value, or an error with the HTTP status that goes with it.
func answer(w http.ResponseWriter, value any, err error) {
	status := http.StatusOK
	switch {
	case errors.Is(err, ErrNoSocket):
		status = http.StatusNotFound
	case errors.Is(err, ErrFailed):
		status = http.StatusInternalServerError
	case err != nil:
		status = http.StatusUnprocessableEntity
	}
	if err != nil {
		value = failure{err.Error()}
	}
	text, err := json.Marshal(value)
	if err != nil { // there is a value that is no number, for instance
		status = http.StatusInternalServerError
		text, _ = json.Marshal(failure{fmt.Sprintf("write the answer: %v", err)})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client is gone
}

// failure is the body of an answer that is none.
type failure struct {
	Error string `json:"error"`
}

// handler is the protocol, for anything that speaks HTTP: curl --unix-socket /run/plait/control http://plait/status
func handler(c Controlled) *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, c.Status(), nil) })
	m.HandleFunc("GET /why", func(w http.ResponseWriter, r *http.Request) {
		s, err := c.Why(r.URL.Query().Get("socket"))
		answer(w, s, err)
	})
	m.HandleFunc("POST /reload", func(w http.ResponseWriter, _ *http.Request) { answer(w, struct{}{}, c.Reload()) })
	m.HandleFunc("POST /down", func(w http.ResponseWriter, _ *http.Request) {
		last := c.Status()                     // what is about to be undone
		last.Prefixes, last.Sockets = nil, nil // many megabytes of a busy host, which would keep its connections waiting
		answer(w, last, nil)
		c.Stop()
	})
	return m
}

// listen makes the socket, for root alone. One that a dead daemon left is replaced: the caller has the lock.
func listen(path string) (net.Listener, error) {
	if other, err := net.Dial("unix", path); err == nil {
		_ = other.Close()
		return nil, fmt.Errorf("listen on %s: another plait answers there; stop it with plait down", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("listen on %s: a file is there that is no socket; name another path as control in the configuration", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove what a dead plait left: %w", err)
	}
	// The mask counts for the whole process. What others make meanwhile is a little more private than they asked for; the
	// socket, made first and restricted then, would be open to all for a moment.
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("make the control socket: %w; name another path as control in the configuration", err)
	}
	return l, nil
}

// Serve answers on the unix socket until ctx ends, then removes it. For whoever stands in for the daemon; Run listens before it
// touches the kernel.
func Serve(ctx context.Context, path string, c Controlled) error {
	held, err := lock(path, 0)
	if err != nil {
		return err
	}
	defer held.Close()
	l, err := listen(path)
	if err != nil {
		return err
	}
	return serve(ctx, l, handler(c), 0)
}

// serve answers on a listener until ctx ends. Answers that are on their way are finished. limit is how long a question and its answer may take to be written and
// read; 0 is for ever.
func serve(ctx context.Context, l net.Listener, h http.Handler, limit time.Duration) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: headerTimeout, ReadTimeout: limit, WriteTimeout: limit,
		BaseContext: func(net.Listener) context.Context { return ctx }, // an answer without end ends with ctx
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	if s.Shutdown(patience) != nil {
		_ = s.Close()
	}
	return nil
}

// ControlClient speaks to the daemon.
type ControlClient struct {
	path string
	http http.Client
}

// Client is for the daemon that listens on a path. It does not connect yet.
func Client(path string) *ControlClient {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &ControlClient{path, http.Client{Timeout: answerTimeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Path is where the daemon is asked.
func (c *ControlClient) Path() string { return c.path }

// call asks the daemon and decodes what it answers.
func (c *ControlClient) call(method, request string, into any) error {
	r, err := http.NewRequest(method, "http://plait"+request, nil)
	if err != nil {
		return err
	}
	what := strings.TrimPrefix(r.URL.Path, "/")
	response, err := c.http.Do(r)
	var body []byte
	if err == nil {
		defer response.Body.Close()
		body, err = io.ReadAll(response.Body)
	}
	if err != nil {
		return c.unanswered(what, err)
	}
	if response.StatusCode != http.StatusOK {
		return c.refusal(what, response.StatusCode, body)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return &failing{fmt.Errorf("decode plait's answer on %s: %w; this plait and the one that is up may be of different versions", c.path, err)}
	}
	return nil
}

// unanswered says why there is no answer, or only a part of one.
func (c *ControlClient) unanswered(what string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("ask for %s on %s: %w", what, c.path, ErrNotRunning)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("ask for %s on %s: %w within %v: plait is busy or hangs, and may still do what it was asked for; see its log, and plait status",
			what, c.path, ErrNoAnswer, c.http.Timeout)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("ask plait on %s: %w; run this as root", c.path, fs.ErrPermission)
	}
	return fmt.Errorf("ask for %s on %s: %w: %w; plait may have ended meanwhile: see its log", what, c.path, ErrNoAnswer, err)
}

// refusal is the error the daemon tells.
func (c *ControlClient) refusal(what string, status int, body []byte) error {
	var f failure
	if json.Unmarshal(body, &f) != nil || f.Error == "" { // the HTTP server's own
		return &failing{fmt.Errorf("ask for %s on %s: the plait that is up does not know what that is (%s): it is older or newer than this command; "+
			"plait down and plait up, or systemctl restart plait, replace it", what, c.path, bytes.TrimSpace(body))}
	}
	switch status {
	case http.StatusNotFound:
		return &missing{f.Error}
	case http.StatusInternalServerError:
		return &failing{errors.New(f.Error)}
	}
	return errors.New(f.Error)
}

// failing is ErrFailed in other words.
type failing struct{ error }

func (f *failing) Unwrap() error        { return f.error }
func (f *failing) Is(target error) bool { return target == ErrFailed }

// missing is ErrNoSocket in the daemon's words.
type missing struct{ text string }

func (m *missing) Error() string        { return m.text }
func (m *missing) Is(target error) bool { return target == ErrNoSocket }

// Status asks how plait is.
func (c *ControlClient) Status() (s Status, err error) {
	return s, c.call(http.MethodGet, "/status", &s)
}

// Why asks about one connection.
func (c *ControlClient) Why(socket string) (s SocketStatus, err error) {
	if _, err := parseSocket(socket); err != nil {
		return s, err
	}
	return s, c.call(http.MethodGet, "/why?socket="+url.QueryEscape(socket), &s)
}

// Reload makes the daemon read its configuration again.
func (c *ControlClient) Reload() error {
	return c.call(http.MethodPost, "/reload", nil)
}

// Stop makes the daemon end, waits until its process is gone, and returns its last status.
func (c *ControlClient) Stop(ctx context.Context) (last Status, err error) {
	if err := c.call(http.MethodPost, "/down", &last); err != nil {
		return last, err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for !gone(last.PID) {
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("wait until plait (process %d) is gone: %w; its log says what it does; call plait down again later", last.PID, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return last, nil
}

// gone says whether a process has ended. One that nobody has waited for yet (Z) has: the kernel has closed all it had.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, ok := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	return ok && len(rest) > 0 && (rest[0] == 'Z' || rest[0] == 'X')
}

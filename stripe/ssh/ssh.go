// Package ssh makes connections of package stripe with hosts one can reach by ssh: it starts plait there with the user's own ssh
// and its configuration, and exchanges keys made for this one connection and addresses over it. The data then goes over all
// links of both ends, not through ssh.
package ssh

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/internal/printable"
)

const (
	// mark begins what is exchanged. Login scripts may print lines before, and leave the last one open.
	mark = "plait-stripe 1 "
	// startTime is how long the far side waits for a path.
	startTime = time.Minute
	// maxText bounds what is read for the line that is exchanged. Options.First may name as many files as a command line can.
	maxText = 32 << 20
	// maxAnswer is the same for what the far side answers: its links, and what login scripts print. As JSON, a byte may become 25 in memory.
	maxAnswer = 1 << 20
	// maxDials is how many connections are begun at once: the far side hangs up on more dialers than it has room for (128 of one address, over all
	// links), and on a busy host 64 handshakes at once are not done in the 2 s that a dialer gives them.
	maxDials = 16
	// heedTime is how long this process may take to hear of a Ctrl-C that has ended ssh.
	heedTime = time.Second / 2
)

// Options say how to start the far side.
type Options struct {
	Command  []string                 // ssh and its options; nil: ssh
	Plait    string                   // the program there; "": plait
	Listen   string                   // the address it listens at, host:port; "": all, any free port
	Links    map[string]stripe.Policy // links of this host; see stripe.Config
	FarLinks map[string]stripe.Policy // the same of the far side
	Carrier  stripe.Carrier           // what paths are made of, at both ends
	Run      string                   // a shell command the far side is to connect with; "": it copies files
	First    []byte                   // what the far side's handler has before anything comes over the connection: a round trip less
	Many     bool                     // the far side takes many connections, until ssh has ended and there is none
}

// offer goes to the far side, answer comes from there.
type offer struct {
	Key     stripe.PublicKey
	Listen  string
	Links   map[string]stripe.Policy `json:",omitempty"`
	Carrier stripe.Carrier           `json:",omitempty"`
	Run     []byte                   // JSON would make a string UTF-8, which names of files need not be
	First   []byte                   `json:",omitempty"`
	Many    bool
}

type answer struct {
	Key     stripe.PublicKey
	Peers   []stripe.Peer
	Carrier stripe.Carrier `json:",omitempty"` // as offered; a release that knows but one leaves it out
	First   bool           // offer.First is known
	Others  []netip.Addr   `json:",omitempty"` // of links that are not to be used
	Error   string
	NoLink  bool // the error is that a link of offer.Links cannot be used
}

// Far is plait on the far side, and the ssh that started it.
type Far struct {
	cfg    *stripe.Config
	peers  []stripe.Peer
	ssh    *exec.Cmd
	stdin  io.Closer
	stdout io.Closer
	ended  chan struct{} // closed when ssh has
	dials  chan struct{} // has room for another one
}

// ErrHost is of a name that no host can have.
var ErrHost = errors.New("begins with -, which ssh would take for an option")

// Start starts plait on a host, as ssh names it (user@host). Once there is a connection, ssh is not needed any more: where all links are away for a while, its
// keepalives end it sooner than a connection's patience.
func Start(ctx context.Context, host string, opt Options) (*Far, error) {
	if strings.HasPrefix(host, "-") {
		return nil, fmt.Errorf("host %q: %w", host, ErrHost)
	}
	links, err := stripe.Links()
	if err == nil {
		err = checkLinks("link", opt.Links, links)
	}
	if err != nil {
		return nil, err
	}
	command := slices.Clip(slices.Clone(opt.Command)) // two goroutines append to it
	if len(command) == 0 {
		command = []string{"ssh"}
	}
	plait := cmp.Or(opt.Plait, "plait")
	cmd := exec.Command(command[0], append(command[1:], "-T", "--", host, plait, "stripe", "serve")...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) && command[0] == "ssh" {
			return nil, errors.New("start ssh: there is none on this host; install it (Debian: apt-get install openssh-client)")
		}
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	name := make(chan stripe.Peer, 1)
	go func() { name <- named(ctx, command, host) }()
	f := &Far{ssh: cmd, stdin: stdin, stdout: stdout, ended: make(chan struct{}), dials: make(chan struct{}, maxDials)}
	stop := context.AfterFunc(ctx, f.terminate)
	defer stop()
	key := stripe.NewKey()
	a, err := ask(stdin, stdout, offer{Key: key.Public(), Listen: opt.Listen, Links: opt.FarLinks, Carrier: opt.Carrier, Run: []byte(opt.Run), First: opt.First, Many: opt.Many})
	go func() { _, _ = io.Copy(io.Discard, stdout); close(f.ended) }()
	if err == nil && a.Carrier != opt.Carrier {
		err = refusedError(fmt.Sprintf("it does not know carrier %s; use the same release of plait at both ends, or no --carrier", opt.Carrier))
	}
	if err == nil && len(opt.First) > 0 && !a.First {
		err = refusedError("it is another release; use the same release of plait at both ends")
	}
	if err == nil {
		if f.peers = withName(a.Peers, <-name, a.Others, links); len(f.peers) == 0 {
			err = refusedError("that host has no address to be reached at on the links it is to use: loopback, and link-local ones (fe80::), do not count; give a link there another one")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", plait, host, f.failure(ctx, plait, host, err))
	}
	f.cfg = &stripe.Config{Key: key, Peers: []stripe.PublicKey{a.Key}, Links: opt.Links, Carrier: opt.Carrier}
	return f, nil
}

// failure is why there is no far side. ssh has ended where there was no answer, of a Ctrl-C perhaps, which a terminal sends to both.
func (f *Far) failure(ctx context.Context, plait, host string, err error) error {
	f.Close()
	answered := errors.As(err, new(refusedError)) || errors.As(err, new(*LinkError))
	if !answered {
		select {
		case <-ctx.Done():
		case <-time.After(heedTime):
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case answered:
		return err
	}
	return said(f.ssh.ProcessState.ExitCode(), f.ssh.Args[0], plait, host, err)
}

// Dial makes a connection with the far side. There may be several only with Options.Many; then it may wait for others that are begun.
func (f *Far) Dial(ctx context.Context) (*stripe.Conn, error) {
	select {
	case f.dials <- struct{}{}:
		defer func() { <-f.dials }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for others that connect: %w", context.Cause(ctx))
	}
	c, err := stripe.DialPeers(ctx, f.cfg, f.peers)
	if err != nil {
		return nil, fmt.Errorf("%w\nthe far side listens on %s port %d; a firewall or NAT in front of it must let that through (--listen chooses the port)", err, f.cfg.Carrier.Network(), port(f.peers))
	}
	return c, nil
}

// Ended is closed when ssh has ended.
func (f *Far) Ended() <-chan struct{} { return f.ended }

// terminate ends ssh, which may have turned off the terminal's echo to ask for a password, and turns it on again.
func (f *Far) terminate() {
	_ = f.ssh.Process.Signal(syscall.SIGTERM)
	f.killLater()
}

// killLater is for an ssh that does not end by itself. What a script in its place has started may have its output open for long.
func (f *Far) killLater() *time.Timer {
	return time.AfterFunc(2*time.Second, func() {
		_ = f.ssh.Process.Kill()
		_ = f.stdout.Close()
	})
}

// Close lets ssh end: the far side does when its input does.
func (f *Far) Close() {
	f.stdin.Close()
	defer f.killLater().Stop()
	<-f.ended
	_ = f.ssh.Wait()
}

// Conn is a connection with a far side of its own.
type Conn struct {
	*stripe.Conn
	far *Far
}

// Dial starts plait on a host and connects with it.
func Dial(ctx context.Context, host string, opt Options) (*Conn, error) {
	far, err := Start(ctx, host, opt)
	if err != nil {
		return nil, err
	}
	c, err := far.Dial(ctx)
	if err != nil {
		far.Close()
		return nil, err
	}
	return &Conn{c, far}, nil
}

// Close closes the connection and waits for ssh.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.far.Close()
	return err
}

// Abort closes without waiting for what was written to arrive.
func (c *Conn) Abort() {
	c.Conn.Abort()
	c.far.Close()
}

// LinkError is a link that was named and cannot be used.
type LinkError struct{ text string }

func (e *LinkError) Error() string { return e.text }

// checkLinks reports such a link before anything is begun: to use fewer than asked for would be no help.
func checkLinks(what string, named map[string]stripe.Policy, links []stripe.Link) error {
	var have []string
	for _, l := range links {
		have = append(have, l.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if !slices.Contains(have, name) {
			return &LinkError{fmt.Sprintf("%s %s: %s; links that can be used: %s", what, name, stripe.Unusable(name), strings.Join(have, ", "))}
		}
	}
	return nil
}

// ask exchanges the lines.
func ask(in io.Writer, out io.Reader, o offer) (answer, error) {
	var a answer
	if err := send(in, o); err != nil {
		return a, err
	}
	if err := receive(bufio.NewReader(out), &a, maxAnswer); err != nil {
		return a, err
	}
	switch {
	case a.NoLink:
		return a, &LinkError{printable.Text(a.Error)}
	case a.Error != "":
		return a, refusedError(printable.Text(a.Error))
	}
	return a, nil
}

// refusedError is what the far side says.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// said is what ssh's status tells when there was no answer. ssh ends with the status of what it ran, or 255; shells with 126 and 127 for what cannot be run.
func said(status int, ssh, plait, host string, err error) error {
	switch status {
	case 255:
		return fmt.Errorf("%s did not get there; what it says is above (try: %s %s true)", ssh, ssh, host)
	case 126, 127:
		return fmt.Errorf("there is no %s that can be run; install plait there, or say where it is with --remote-plait", plait)
	case 0:
		return errors.New("it ended without an answer; see that nothing in the shell's start-up files there ends it")
	case -1: // it did not end by itself
		return fmt.Errorf("no answer: %w", err)
	}
	return fmt.Errorf("it ended with status %d; what it says is above. Where there is no %s, install it, or say where it is with --remote-plait; another release of plait may not do: use the same at both ends", status, plait)
}

func send(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", mark, b)
	return err
}

// receive reads up to the end of the line with the mark, at most so many bytes.
func receive(r *bufio.Reader, v any, most int) error {
	var line []byte
	for read := 0; read < most; {
		part, err := r.ReadSlice('\n')
		read += len(part)
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err
		}
		if _, text, ok := bytes.Cut(line, []byte(mark)); ok {
			return json.Unmarshal(text, v)
		}
		line = line[:0]
	}
	if bytes.Contains(line, []byte(mark)) {
		return fmt.Errorf("what came is longer than %d bytes", most)
	}
	return errors.New("only other text came")
}

func port(peers []stripe.Peer) uint16 {
	for _, p := range peers {
		if len(p.Addrs) > 0 {
			return p.Addrs[0].Port()
		}
	}
	return 0
}

// named is the host by the address ssh uses, without a port; or nothing, if it is known only behind a jump host.
func named(ctx context.Context, command []string, host string) (p stripe.Peer) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "-G", "--", host)...)
	cmd.WaitDelay = time.Second // what ssh runs for its configuration may keep the output open
	out, err := cmd.Output()
	if err != nil {
		return p
	}
	for line := range strings.Lines(string(out)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "hostname "); ok {
			p.Link = n
		}
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", p.Link)
	if err != nil {
		return p
	}
	for _, ip := range ips {
		p.Addrs = append(p.Addrs, netip.AddrPortFrom(ip.Unmap(), 0))
	}
	return p
}

// withName adds the address ssh uses, if the far side does not know it as its own: a NAT's. Others are its own that are not to be used. Where ssh leads to another host, that one's
// loopback, which it tells for want of other addresses, is left out: here it is this host's.
func withName(peers []stripe.Peer, own stripe.Peer, others []netip.Addr, here []stripe.Link) []stripe.Peer {
	at := port(peers)
	if len(own.Addrs) > 0 && !slices.ContainsFunc(own.Addrs, func(a netip.AddrPort) bool { return isHere(a.Addr(), here) }) {
		peers = slices.DeleteFunc(peers, func(p stripe.Peer) bool { return len(p.Addrs) > 0 && p.Addrs[0].Addr().IsLoopback() })
	}
	own.Addrs = slices.DeleteFunc(own.Addrs, func(a netip.AddrPort) bool {
		return slices.Contains(others, a.Addr()) || a.Addr().IsLinkLocalUnicast() // which no path begins at
	})
	if at == 0 || len(own.Addrs) == 0 {
		return peers
	}
	for i, a := range own.Addrs {
		own.Addrs[i] = netip.AddrPortFrom(a.Addr(), at)
	}
	known := slices.ContainsFunc(peers, func(p stripe.Peer) bool {
		return slices.ContainsFunc(p.Addrs, func(a netip.AddrPort) bool { return slices.Contains(own.Addrs, a) })
	})
	if known {
		return peers
	}
	return append(peers, own)
}

// isHere reports whether an address is this host's.
func isHere(a netip.Addr, links []stripe.Link) bool {
	return a.IsLoopback() || slices.ContainsFunc(links, func(l stripe.Link) bool {
		return slices.ContainsFunc(l.Addrs, func(own netip.Prefix) bool { return own.Addr() == a })
	})
}

package traffic

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// outputLimit is how much of the client's standard output is kept; more is an error.
	outputLimit = 16 << 20
	// serverHeadStart is what a server gets whose command does not mention $PORT.
	serverHeadStart = 100 * time.Millisecond
)

// portMention finds $PORT and ${PORT} in a shell command.
var portMention = regexp.MustCompile(`\$(PORT\b|\{PORT\})`)

// limited is a buffer that refuses more than outputLimit bytes.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > outputLimit {
		return 0, fmt.Errorf("keep output: more than %d bytes", outputLimit)
	}
	return l.Buffer.Write(p)
}

// shell prepares a shell command with the variables FROM, TO and PORT.
func (r *run) shell(ctx context.Context, ns, text string) *process {
	name, args := "sh", []string{"-c", text}
	if r.app.Protocol == "mptcp" {
		name, args = "mptcpize", append([]string{"run", "sh"}, args...)
	}
	p := program(ctx, ns, name, args...)
	to := ""
	if r.ends.To.IsValid() {
		to = r.ends.To.String()
	}
	p.Env = append(os.Environ(), "FROM="+r.ends.From.String(), "TO="+to, "PORT="+strconv.Itoa(int(r.ends.Port)))
	return p
}

// listening says whether a table of /proc/net (tcp, tcp6: proc_pid_net(5); sctp/eps) has a socket that waits for
// connections on a port.
func listening(table string, port uint16) bool {
	hex := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		tcp := len(f) > 3 && strings.HasSuffix(f[1], hex) && f[3] == "0A"
		// ENDPT SOCK STY SST HBKT LPORT: style 2 is one-to-one, state 10 listens.
		sctp := len(f) > 5 && f[3] == "10" && f[5] == strconv.Itoa(int(port))
		if tcp || sctp {
			return true
		}
	}
	return false
}

// await waits until the server takes connections, as far as that can be known.
func (r *run) await(ctx context.Context, s *server) error {
	if !portMention.MatchString(r.app.ServerCommand) {
		return s.pause(ctx, serverHeadStart)
	}
	for waited := time.Duration(0); waited < readyLimit; waited += readyPoll {
		for _, name := range []string{"tcp6", "tcp", "sctp/eps"} {
			table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", s.Process.Pid, name))
			if listening(string(table), r.ends.Port) {
				return nil
			}
		}
		if err := s.pause(ctx, readyPoll); err != nil {
			return err
		}
	}
	return fmt.Errorf("wait for server_command at %s: port %d does not listen after %s", r.ends.FromNS, r.ends.Port, readyLimit)
}

// runServer starts the server command, if there is one, and returns what stops it. How the server ends is its own affair:
// some serve one client and leave.
func (r *run) runServer(ctx context.Context) (stop func(), err error) {
	if r.app.ServerCommand == "" {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	s, err := r.shell(ctx, r.ends.FromNS, r.app.ServerCommand).serve(cancel)
	if err != nil {
		return nil, err
	}
	if err := r.await(ctx, s); err != nil {
		_ = s.stop()
		return nil, err
	}
	return func() { _ = s.stop() }, nil
}

// results reads the metrics asked for from the output. If the client was cut short, those it did not get to are left out.
func (r *run) results(output []byte, cut bool, out *Outcome) error {
	names := make([]string, 0, len(r.app.Results))
	for name := range r.app.Results {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value, err := extract(output, r.app.Results[name])
		switch {
		case err == nil:
			out.Metrics[name] = value
		case !cut:
			return fmt.Errorf("read result %s from client_command's output: %w", name, err)
		}
	}
	return nil
}

// command runs programs of the user's choice.
func command(ctx context.Context, r *run) (*Outcome, error) {
	if r.app.Congestion != "" {
		return nil, fmt.Errorf("start command: congestion %s cannot be set on other programs' sockets: use an option of theirs, or sysctl net.ipv4.tcp_congestion_control at %s", r.app.Congestion, r.ends.FromNS)
	}
	stop, err := r.runServer(ctx)
	if err == nil {
		defer stop()
	} else if ctx.Err() == nil {
		return nil, err
	}
	out := &Outcome{Metrics: map[string]float64{}}
	if ctx.Err() != nil { // ended before its server was ready
		r.begin()
		return out, nil
	}
	client := r.shell(ctx, r.ends.ToNS, r.app.ClientCommand)
	var output limited
	client.Stdout = &output
	r.begin()
	if err := client.start(); err != nil {
		return nil, err
	}
	err = client.finish()
	cut := ctx.Err() != nil
	if err != nil && !cut {
		return nil, err
	}
	if !cut {
		out.Metrics["completion_s"] = round((r.since() - r.start).Seconds(), 6)
	}
	return out, r.results(output.Bytes(), cut, out)
}

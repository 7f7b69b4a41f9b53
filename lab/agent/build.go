package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"maps"

	"plait.dev/plait/lab/emu"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/netns"
	"plait.dev/plait/lab/queue"
	"plait.dev/plait/lab/topo"
)

// readyTimeout is the virtual time a topology may take to become ready. Three BGP hops with timers of a second need
// about ten; what takes longer is broken.
const readyTimeout = time.Minute

// pollEvery is the virtual time between two looks at a topology that was begun so long ago. Waiting costs the host nothing, a look does: what should be
// ready by now is looked at seldom.
func pollEvery(since time.Duration) time.Duration {
	if since > readyTimeout/4 {
		return 5 * time.Second
	}
	return 500 * time.Millisecond
}

// commandTimeout is the virtual time one command of the plan, of a node or of an event may take.
const commandTimeout = 120 * time.Second

// Network is what a topology is built from, the same for all cells that go on from one saved machine. Nothing else of a cell may be in the job that prepares that: what the
// guest reads takes time, and it would depend on which of the cells came first.
type Network struct {
	Plan     *topo.Plan `json:"plan"`
	Emulator emu.Config `json:"emulator"`
}

// NewNetwork is that of a resolved cell. Its emulated links do nothing: their parameters come after the machine has been saved.
func NewNetwork(spec *experiment.Spec) (*Network, error) {
	t, err := topo.New(spec)
	if err != nil {
		return nil, err
	}
	n := &Network{Plan: t.Plan()}
	for _, name := range n.Plan.Emulated {
		l := spec.Links[name]
		end := func(node string) emu.End { return emu.End{NS: node, Interface: name, MAC: t.MAC(node, name)} }
		n.Emulator.Links = append(n.Emulator.Links, emu.Link{Name: name, A: end(l.Ends[0]), B: end(l.Ends[1]), MTU: l.MTU})
	}
	return n, nil
}

// network is a topology that has been built.
type network struct {
	topology *topo.Topology // the cell's
	plan     *topo.Plan
	emulator *emu.Process            // nil if no link needs it
	queues   map[string]*queue.Queue // of directions that need package queue: "LINK forward", "LINK backward"
	tally    tally
}

// build makes the topology and waits until it is ready.
func build(from *Network, h host) (n *network, err error) {
	n = &network{plan: from.Plan}
	var add []string
	for _, name := range n.plan.Namespaces {
		add = append(add, "netns add "+name)
	}
	if err := runSteps([]topo.Step{{Tool: "ip", Lines: add}}); err != nil {
		return nil, err
	}
	if err := runSteps(n.plan.Steps); err != nil {
		return nil, err
	}
	if len(n.plan.Emulated) > 0 {
		if n.emulator, err = emu.Start(from.Emulator); err != nil {
			return nil, err
		}
	}
	if err := runSteps(n.plan.After); err != nil {
		return nil, err
	}
	if err := n.startDaemons(h); err != nil {
		return nil, err
	}
	return n, n.awaitReady(h)
}

// configure gives every link the parameters of the cell.
func (n *network) configure(spec *experiment.Spec, seed int) error {
	for _, name := range sortedKeys(spec.Links) {
		if err := n.setLink(name, spec.Links[name], uint64(seed), 0); err != nil {
			return err
		}
	}
	return n.attachQueues(spec)
}

// attachQueues makes the queues that are no qdisc. The timeline changes none of these links.
func (n *network) attachQueues(spec *experiment.Spec) (err error) {
	n.queues = map[string]*queue.Queue{}
	for _, name := range sortedKeys(spec.Links) {
		for _, direction := range []string{"forward", "backward"} {
			q, ok := n.topology.Queue(name, direction == "forward", spec.Links[name])
			if !ok {
				continue
			}
			if n.queues[name+" "+direction], err = queue.Attach(queue.Config(q)); err != nil {
				return fmt.Errorf("link %s, %s: %w", name, direction, err)
			}
		}
	}
	return nil
}

// setLink gives a link its parameters, both directions complete. change tells events apart: netem starts its random losses
// anew at each, and must not repeat them.
func (n *network) setLink(name string, l *experiment.Link, seed, change uint64) error {
	if slices.Contains(n.plan.Emulated, name) {
		return n.emulator.Change(name, *l.Forward, *l.Backward, seed)
	}
	return runSteps(n.topology.LinkSteps(name, l, seed+change<<32))
}

func (n *network) startDaemons(h host) error {
	for _, f := range n.plan.Files {
		if err := writeFile(f); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	for _, d := range n.plan.Daemons {
		h.send(Message{Doing: "starting " + filepath.Base(d.Argv[0]) + " on " + d.NS})
		if err := runIn(d.NS, nil, d.Argv...); err != nil {
			return err
		}
	}
	return nil
}

// writeFile makes a configuration file and its directory, both of the owner.
func writeFile(f topo.File) error {
	dir := filepath.Dir(f.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(f.Path, []byte(f.Content), os.FileMode(f.Mode)); err != nil || f.Owner == "" {
		return err
	}
	owner, err := user.Lookup(f.Owner)
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	return errors.Join(os.Chown(dir, uid, gid), os.Chown(f.Path, uid, gid))
}

// awaitReady polls the plan's checks until all hold.
func (n *network) awaitReady(h host) error {
	began := time.Now()
	for _, c := range n.plan.Ready {
		want, err := regexp.Compile(c.Want)
		if err != nil {
			return fmt.Errorf("check %s: %w", c.What, err)
		}
		h.send(Message{Doing: "waiting: " + c.What})
		for {
			out, err := output(c.NS, nil, "sh", "-c", c.Command)
			if err == nil && want.Match(out) {
				break
			}
			if time.Since(began) > readyTimeout {
				return fmt.Errorf("not ready after %v: %s; %s printed %q", readyTimeout, c.What, c.Command, tail(out))
			}
			time.Sleep(pollEvery(time.Since(began)))
		}
	}
	return nil
}

// runSteps carries out commands in order.
func runSteps(steps []topo.Step) error {
	for _, s := range steps {
		var err error
		switch s.Tool {
		case "ip", "tc":
			err = runIn(s.NS, []byte(strings.Join(s.Lines, "\n")+"\n"), s.Tool, "-batch", "-")
		case "sh":
			for _, line := range s.Lines {
				if err = runIn(s.NS, nil, "sh", "-c", line); err != nil {
					break
				}
			}
		case "sysctl":
			err = netns.Do(s.NS, func() error { return setSysctls(s.Lines) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setSysctls writes key=value lines. A network sysctl belongs to the namespace of the thread that opens it.
func setSysctls(lines []string) error {
	for _, line := range lines {
		key, value, _ := strings.Cut(line, "=")
		path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("set sysctl %s: %w", line, err)
		}
	}
	return nil
}

// runIn runs a program in the namespace until its first process ends. Its error says what it was asked and what it printed.
func runIn(ns string, input []byte, argv ...string) error {
	out, err := output(ns, input, argv...)
	if err != nil {
		return fmt.Errorf("run %q in %s: %w: %s\n%s", brief(strings.Join(argv, " ")), ns, err, tail(out), input)
	}
	return nil
}

// output of a program in the namespace. It goes to a file, for a daemon or a background process keeps it open.
func output(ns string, input []byte, argv ...string) ([]byte, error) {
	log, err := os.CreateTemp("", "output-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	ctx, cancel := context.WithTimeoutCause(context.Background(), commandTimeout, fmt.Errorf("not done after %v", commandTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), log, log
	if err = netns.Start(ns, cmd); err == nil {
		err = cmd.Wait()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	out, _ := os.ReadFile(log.Name())
	return out, err
}

// brief is a command of which a script's first line is enough to find it in the experiment's file.
func brief(command string) string {
	first, rest, several := strings.Cut(strings.TrimSpace(command), "\n")
	if !several {
		return first
	}
	return fmt.Sprintf("%s ... (%d more lines)", first, 1+strings.Count(rest, "\n"))
}

// tail is the end of a program's output, enough to see what is wrong: 20 lines, and of endless ones 4,000 bytes.
func tail(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	end := strings.Join(lines[max(0, len(lines)-20):], "\n")
	return end[max(0, len(end)-4000):]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

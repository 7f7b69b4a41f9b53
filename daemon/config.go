package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
)

// Where plait looks and listens if nothing else is configured.
const (
	DefaultConfigPath = "/etc/plait/plait.yaml"
	DefaultControl    = "/run/plait/control"
	defaultMetrics    = "127.0.0.1:9464"
	metricsOff        = "off"
)

// maxRules is what the kernel half's table of 64 policies (plait_policies, bpf/sock.h) has beside the one for everything else.
const maxRules = 63

// maxPrefixes is what there is room for in plait_prefixes (bpf/rules.h), less the one that setRules may put there for IPv4.
const maxPrefixes = 65535

// maxControlBytes is what an address of a unix socket holds (sun_path, less its final 0).
const maxControlBytes = 107

// maxConfigBytes is more than the rules that the kernel half has room for (65535 prefixes) take. What is larger is no configuration, and would fill the memory of a daemon
// that is up.
const maxConfigBytes = 8 << 20

// Mode is what a lever may do.
type Mode string

// The modes. Observe decides and reports what it would do, and acts on nothing.
const (
	Off     Mode = "off"
	Observe Mode = "observe"
	On      Mode = "on"
)

// What a choice may do to the traffic it shares a path with.
const (
	Friendly   = "friendly"
	Aggressive = "aggressive"
)

// Config is a configuration file; docs/congestion/configuration.md describes every key.
type Config struct {
	// Cgroup is the directory (cgroup v2) whose processes' connections plait takes. ReadConfig puts in the mount findCgroup
	// finds if the file names none; empty if there is none either.
	Cgroup string
	// Control is the path of the unix socket of plait's own commands.
	Control string
	// Metrics is the loopback address Prometheus reads from, or "off".
	Metrics    string
	Congestion Lever
	Egress     Egress
	Ackpath    Ackpath

	fromFile  bool      // not the defaults because there was no file
	overrides Overrides // applied again when the file is read again
}

// Lever is how the congestion control of connections is chosen.
type Lever struct {
	Mode Mode
	// Policy is "plait" or a name of congestion.Names.
	Policy string
	// HoldoutPercent is the share of connections left on the system's default, from 0 to 100.
	HoldoutPercent float64
	Allow          string // Friendly or Aggressive
	// Rules are exceptions, at most maxRules. No port, prefix or cgroup is in two of them.
	Rules []Rule
}

// Selection is which connections a rule is for.
type Selection struct {
	Selector string // as the file says it; a long list in part
	Ports    []uint16
	Prefixes []netip.Prefix // without bits behind their length, IPv4 not mapped
	Cgroups  []uint64       // cgroup v2, as the kernel numbers them: a directory made again has another number
}

// Rule is an exception for connections with one of these local ports, to one of these prefixes or of one of these cgroups. What is
// not set is as in the lever.
type Rule struct {
	Selection
	Mode           Mode
	Policy         string
	HoldoutPercent *float64
	Allow          string
}

// DefaultConfig is the configuration without a file.
func DefaultConfig() Config {
	return Config{
		Control:    DefaultControl,
		Metrics:    defaultMetrics,
		Congestion: Lever{Mode: On, Policy: defaultPolicy, HoldoutPercent: 5, Allow: Friendly},
		Ackpath:    defaultAckpath(),
	}
}

// with is the lever as it is for connections of a rule; it has no rules itself.
func (l Lever) with(r Rule) Lever {
	out := l
	out.Rules = nil
	if r.Mode != "" {
		out.Mode = r.Mode
	}
	if r.Policy != "" {
		out.Policy = r.Policy
	}
	if r.HoldoutPercent != nil {
		out.HoldoutPercent = *r.HoldoutPercent
	}
	if r.Allow != "" {
		out.Allow = r.Allow
	}
	return out
}

// levers are what the kernel half's table of policies holds: for everything no rule is for, then for each rule in turn.
func (c Config) levers() []Lever {
	all := []Lever{c.Congestion.with(Rule{})}
	for _, r := range c.Congestion.Rules {
		all = append(all, c.Congestion.with(r))
	}
	return all
}

// takes says whether there is any connection the lever congestion does not leave alone.
func (c Config) takes() bool {
	return slices.ContainsFunc(c.levers(), func(l Lever) bool { return l.Mode != Off })
}

// Overrides are what the command line says against the file. They last as long as the daemon, over reloads: a reload must not
// act on a host that was told to observe.
type Overrides struct {
	Observe bool   // whatever is on observes
	Policy  string // of connections no rule gives one; empty: as in the file
}

// Override applies what the command line says.
func (c Config) Override(o Overrides) (Config, error) {
	if o.Policy != "" {
		if why := wrongPolicy(o.Policy); why != "" {
			return c, fmt.Errorf("--policy %s: %s", o.Policy, why)
		}
		c.Congestion.Policy = o.Policy
	}
	if o.Observe {
		observe(&c.Congestion.Mode)
		rules := make([]Rule, len(c.Congestion.Rules))
		copy(rules, c.Congestion.Rules) // the caller's stay as they are
		for i := range rules {
			observe(&rules[i].Mode)
		}
		c.Congestion.Rules = rules
		observe(&c.Egress.Mode)
		observe(&c.Ackpath.Mode)
	}
	c.overrides = o
	return c, nil
}

func observe(m *Mode) {
	if *m == On {
		*m = Observe
	}
}

// Reread reads the configuration again for a daemon that runs with this one, with the same overrides. The paths of a running
// daemon cannot change.
func (c Config) Reread(path string) (Config, error) {
	next, err := ReadConfig(path)
	if err != nil {
		return c, err
	}
	if c.fromFile && !next.fromFile { // the defaults would take connections that it left alone
		return c, fmt.Errorf("%s: the file that is in force is gone: put it back, or write {} to it to run with the defaults", path)
	}
	if next.Control != c.Control || next.Metrics != c.Metrics || c.Cgroup != "" && next.Cgroup != c.Cgroup { // "": there was none, and it was not needed
		return c, fmt.Errorf("%s: control, metrics and cgroup take effect when plait starts: run plait down and plait up", path)
	}
	if next, err = next.Override(c.overrides); err != nil {
		return c, err
	}
	if !reflect.DeepEqual(next.Egress.lasting(), c.Egress.lasting()) {
		return c, fmt.Errorf("%s: all of egress but strategy, holdout_percent, moved_percent, rules, and cost and cap_mbps of exits takes effect when plait starts: run plait down and plait up", path)
	}
	if next.Ackpath.Port != c.Ackpath.Port {
		return c, fmt.Errorf("%s: port of ackpath takes effect when plait starts: run plait down and plait up", path)
	}
	return next, nil
}

// ReadConfig reads a configuration file. All its problems are told at once, a line each: file:line:column: what: expected what.
// What is in order is in the Config even then. Without the file at DefaultConfigPath, or with an empty path, everything is as
// by default.
func ReadConfig(path string) (Config, error) {
	c := DefaultConfig()
	var err error
	if path != "" {
		err = c.read(path)
	}
	if c.Cgroup == "" {
		c.Cgroup, _ = findCgroup() // whoever needs it says what is missing
	}
	return c, err
}

func (c *Config) read(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("read configuration %s: it is a directory; name a file in it", path)
	}
	if err == nil && !info.Mode().IsRegular() { // a pipe has its text once, and another process is to read it, and a reload
		return fmt.Errorf("read configuration %s: it is no regular file, and is to be read more than once; write it to a file and name that", path)
	}
	if err == nil && info.Size() > maxConfigBytes {
		return fmt.Errorf("read configuration %s: it has %d bytes: expected %d at most", path, info.Size(), maxConfigBytes)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	switch {
	case errors.Is(err, os.ErrNotExist) && path == DefaultConfigPath:
		return nil
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("read configuration %s: there is no such file; name another with --config, or leave --config out to run with the defaults", path)
	case errors.Is(err, os.ErrPermission): // the daemon has given up the right to read all the same
		return fmt.Errorf("read configuration: %w; run this as root, who must be able to read it without special rights: chown root %s, chmod u+r %[2]s", err, path)
	case err != nil:
		return fmt.Errorf("read configuration: %w", err)
	}
	c.fromFile = true
	return c.parse(path, text)
}

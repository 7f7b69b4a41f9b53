package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"plait.dev/plait/bpf"
	"plait.dev/plait/congestion"
	"plait.dev/plait/signals"
)

// policy is one entry of the kernel half's table: what is configured, compiled.
type policy struct {
	lever  Lever
	rule   string // its selector; empty for what no rule is for
	name   string // of what chooses; with whether it may be aggressive, unlike the lever's
	choose func() congestion.Policy
	kernel bpf.Policy
}

// compile turns a configured lever into an entry of the kernel half's table. What a policy starts with is what it chooses of a
// socket about which nothing is known.
func compile(l Lever) (policy, error) {
	p := policy{lever: l, kernel: bpf.Policy{HoldoutPpm: uint32(l.HoldoutPercent * 10000)}}
	name := l.Policy
	if l.Allow == Aggressive && name == defaultPolicy {
		name += ":aggressive"
	}
	choose, err := congestion.New(name)
	if err != nil {
		return p, err
	}
	p.name, p.choose = name, choose
	first := choose().Choose(signals.Sample{Algorithm: signals.Cubic})
	p.kernel.Algorithm, p.kernel.Bulk = uint8(first.Algorithm), uint8(first.Bulk)
	switch l.Mode {
	case On:
		p.kernel.Managed = 1
	case Observe:
		p.kernel.Observed = 1
	}
	return p, nil
}

// apply writes a configuration into the kernel half and lets connections look for their rules again. What is known of them and of
// destinations may be from other rules, so it begins anew.
func (d *Daemon) apply(c Config, table []policy) error {
	k := d.kernel
	for i, p := range table {
		if err := k.setPolicy(uint32(i), p.kernel); err != nil {
			return err
		}
	}
	if err := k.setRules(c.Congestion.Rules); err != nil {
		return err
	}
	if err := k.setReverted(d.reverted, table); err != nil {
		return err
	}
	for cookie := range d.sockets {
		d.forget(cookie)
	}
	k.control.Generation++
	if err := k.beat(d.every); err != nil {
		return err
	}
	if err := k.clearLatencies(); err != nil {
		return err
	}
	d.config, d.policies, d.anew, d.halfway = c, table, true, false
	return nil
}

// install puts a configuration in force. If that fails, the one before is in force again.
func (d *Daemon) install(c Config) error {
	var table []policy
	for i, l := range c.levers() {
		p, err := compile(l)
		if err != nil {
			return err
		}
		if i > 0 {
			p.rule = c.Congestion.Rules[i-1].Selector
		}
		table = append(table, p)
	}
	err := d.apply(c, table)
	if err == nil || d.policies == nil {
		return err
	}
	if again := d.apply(d.config, d.policies); again != nil {
		d.halfway = true
		return fmt.Errorf("put the configuration in force: %w; the old one could not be put back (%w): run plait down and plait up", err, again)
	}
	return fmt.Errorf("put the configuration in force: %w; the old one is in force again", err)
}

// outline is what the log says of a configuration.
func (c Config) outline(path string) string {
	return fmt.Sprintf("configuration %s, congestion %s (policy %s, %d rules), egress %s, ackpath %s",
		path, c.Congestion.Mode, c.Congestion.Policy, len(c.Congestion.Rules), cmp.Or(c.Egress.Mode, Off), c.Ackpath.Mode)
}

func (d *Daemon) outline() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config.outline(d.options.ConfigPath)
}

// Reload implements Controlled.
func (d *Daemon) Reload() error {
	err := d.reload()
	if err != nil {
		fmt.Fprintf(d.options.Log, "reload: %v\n", err)
	} else {
		fmt.Fprintf(d.options.Log, "reload: now in force: %s\n", d.outline())
	}
	return err
}

func (d *Daemon) reload() error {
	if d.options.ConfigPath == "" {
		return errors.New("reload: plait runs without a configuration file; start it with --config")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c, err := d.config.Reread(d.options.ConfigPath)
	if err != nil {
		return err
	}
	if c.takes() && !d.kernel.takes { // the right to is given away
		return fmt.Errorf("%s: congestion was off for all connections when plait came up, and takes effect when plait starts: run plait down and plait up", d.options.ConfigPath)
	}
	if why := d.kernel.replaced(c.Cgroup); why != "" {
		return fmt.Errorf("%s: %s", d.options.ConfigPath, why)
	}
	if err := d.force(c); err != nil {
		return &failing{err}
	}
	return nil
}

// force puts in force what is a right configuration. Where another section has changed, what is known of connections and destinations stays: egress may get new costs
// every few minutes. The pass is made in any case: the one before may have failed. The caller has d.mu.
func (d *Daemon) force(c Config) error {
	if !d.halfway && reflect.DeepEqual(c.Congestion, d.config.Congestion) { // with the numbers of cgroups
		d.config = c
	} else if err := d.install(c); err != nil {
		return err
	}
	d.acks.configure(c)
	err := d.exits.reload(&c.Egress)
	if failed := d.kernel.pass(passRevise); failed != nil {
		err = errors.Join(err, fmt.Errorf("the configuration is in force, but not for all connections that exist: %w; run plait reload again", failed))
	}
	return err
}

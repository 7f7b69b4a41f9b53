// Package topo turns the nodes, links and routers of an experiment into a plan: the namespaces, commands and FRR files
// that make it real. It computes and never touches a kernel; package agent executes the plan in the guest.
//
//	go test ./lab/topo            # compares plans with testdata/*.golden; -update rewrites them
//
// What a plan realises, and what it does not:
//   - Every node is a network namespace of its own; the interface on a node has the link's name.
//   - IPv6 and IPv4 addresses on every link, static shortest-path routes over forwarding nodes for both.
//   - BGP (FRR) carries IPv6 only.
package topo

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"plait.dev/plait/lab/experiment"
)

// Topology is the pure form of an experiment's network: who has which address on which link, and who runs what.
// It is immutable.
type Topology struct {
	spec  *experiment.Spec
	links []*link // by index
	nodes []*node // by first appearance in links, then by name
	exits []*exit // by name
}

// Plan is what the agent does, in this order: Namespaces, Steps, Files, Emulated, After, Daemons; then Ready is polled;
// then, for each cell, LinkSteps of every link, and what Queue says.
type Plan struct {
	// Namespaces to create, "wire" first. wire holds the inner parts of the links.
	Namespaces []string
	// Steps create the interfaces that commands can create.
	Steps []Step
	// Files are FRR's configuration; their directories exist after Steps.
	Files []File
	// Daemons are run one after the other, each until its first process exits: a daemon does so when it is ready.
	Daemons []Daemon
	// Emulated names the links that package emu runs: in the namespace of each end it creates a TAP named like the link,
	// with the address from MAC.
	Emulated []string
	// After configures the interfaces: addresses, neighbours, routes, rules, endpoints; then come the nodes' own commands.
	After []Step
	// Ready says when the network has converged.
	Ready []Check
}

// Step is a batch of commands in one namespace; the first that fails makes the run invalid.
type Step struct {
	// NS is the namespace, "" the guest's own.
	NS string
	// Tool reads the lines: "ip" (ip -batch -), "tc" (tc -batch -), "sh" (each line by sh -c), "sysctl" (key=value, written under /proc/sys).
	Tool string
	// Lines are the commands.
	Lines []string
}

// File is a file to write.
type File struct {
	Path    string
	Content string
	// Mode is the permission bits.
	Mode uint32
	// Owner is the user and group that own it.
	Owner string
}

// Daemon is a program run in a namespace.
type Daemon struct {
	NS   string
	Argv []string
}

// Check is a condition on the output of a command.
type Check struct {
	NS string
	// Command for sh -c. A non-zero exit status means the condition does not hold yet.
	Command string
	// Want is the regular expression its output must match.
	Want string
	// What holds then, for the error if it never does.
	What string
}

// New computes the topology of a resolved cell, every $param filled in and the directions of its links complete. Package experiment has
// found the names that do not exist and what is no prefix. An error begins with the path of the key of the experiment file that is wrong, and a colon.
func New(s *experiment.Spec) (*Topology, error) {
	ordered := *s // what an event replaces, those before it made
	ordered.Timeline = slices.Clone(s.Timeline)
	slices.SortStableFunc(ordered.Timeline, func(a, b experiment.Event) int { return cmp.Compare(a.AtS, b.AtS) })
	t := &Topology{spec: &ordered}
	for _, build := range []func() error{t.buildLinks, t.buildNodes, t.buildRouters, t.buildExits, t.checkEvents, t.checkApps} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Nodes returns the names of the nodes in the order of their first appearance in the links.
func (t *Topology) Nodes() []string {
	names := make([]string, len(t.nodes))
	for i, n := range t.nodes {
		names[i] = n.name
	}
	return names
}

// Address returns the address of a node on a link, in family 6 or 4; link "" is the node's first link in the file.
func (t *Topology) Address(nodeName, linkName string, family int) (netip.Addr, bool) {
	n := t.node(nodeName)
	if n == nil {
		return netip.Addr{}, false
	}
	for _, e := range n.ends {
		if linkName == "" || e.link.name == linkName {
			return e.addr(family), true
		}
	}
	return netip.Addr{}, false
}

// Plan returns the plan. It depends on which parameters links have, not on their values.
func (t *Topology) Plan() *Plan {
	p := &Plan{Namespaces: append([]string{wire}, t.Nodes()...)}
	p.Steps = append(p.Steps, t.sysctlSteps()...)
	p.Steps = append(p.Steps, t.linkCreation()...)
	p.Steps = append(p.Steps, t.vrfCreation()...)
	p.After = append(p.After, t.offloadSteps()...)
	p.After = append(p.After, t.interfaceSteps()...)
	for _, n := range t.nodes {
		p.After = append(p.After, t.routingSteps(n)...)
	}
	for _, n := range t.nodes {
		p.After = append(p.After, step(n.name, "sh", n.spec.Run)...)
	}
	t.addRouters(p)
	for _, l := range t.links {
		if l.kind == emulated {
			p.Emulated = append(p.Emulated, l.name)
		}
	}
	return p
}

// step wraps lines unless there are none.
func step(ns, tool string, lines []string) []Step {
	if len(lines) == 0 {
		return nil
	}
	return []Step{{NS: ns, Tool: tool, Lines: lines}}
}

func (t *Topology) node(name string) *node {
	for _, n := range t.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

func (t *Topology) link(name string) *link {
	for _, l := range t.links {
		if l.name == name {
			return l
		}
	}
	return nil
}

// sysctlSteps sets the environment of every namespace before it has interfaces, so that they inherit it.
func (t *Topology) sysctlSteps() []Step {
	steps := []Step{
		// One TCP burst crosses all namespaces through this queue; the kernel's 1000 would be a bottleneck nobody declared.
		{NS: "", Tool: "sysctl", Lines: []string{"net.core.netdev_max_backlog=1000000"}},
		// The links' inner parts must not send packets of their own.
		{NS: wire, Tool: "sysctl", Lines: []string{"net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"}},
	}
	for _, n := range t.nodes {
		lines := n.environment()
		lines = append(lines, sysctlLines(t.spec.Sysctl)...)
		lines = append(lines, sysctlLines(n.spec.Sysctl)...)
		steps = append(steps, Step{NS: n.name, Tool: "sysctl", Lines: lines})
	}
	return steps
}

// environment is what every node has: no duplicate address detection, router advertisements or generated addresses,
// all of which would make the start depend on timers; and SRv6.
func (n *node) environment() []string {
	var lines []string
	for _, scope := range []string{"all", "default"} {
		for _, kv := range []string{"accept_dad=0", "dad_transmits=0", "accept_ra=0", "autoconf=0", "addr_gen_mode=1", "keep_addr_on_down=1", "seg6_enabled=1"} {
			if scope == "all" && kv == "addr_gen_mode=1" {
				continue // the kernel accepts it per device and as default
			}
			lines = append(lines, "net.ipv6.conf."+scope+"."+kv)
		}
		lines = append(lines, fmt.Sprintf("net.ipv4.conf.%s.rp_filter=0", scope))
		if n.forwards() {
			lines = append(lines, fmt.Sprintf("net.ipv6.conf.%s.forwarding=1", scope), fmt.Sprintf("net.ipv4.conf.%s.forwarding=1", scope))
		}
	}
	return lines
}

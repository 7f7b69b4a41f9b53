package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/bgp"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/egress/route"
)

// openKernel prepares what mode on needs; nothing is changed yet but who manages the paths of new MPTCP connections.
func (x *exits) openKernel(control string) error {
	var addresses []netip.Addr
	for _, e := range x.config.Exits {
		addresses = append(addresses, e.Addresses...)
	}
	kernel, err := route.Open(route.Config{Exits: x.config.Exits, Interface: x.config.Interface, TunnelSource: x.config.Address,
		Memory: control + tunnelSourceSuffix, Journal: x.note})
	if err != nil {
		return err
	}
	service, err := mptcp.Open(mptcp.Config{Exits: addresses, Reachable: x.reachable, Why: x.why, Joined: x.joined, Log: x.logger("mptcp")})
	if err == nil {
		if err = mptcp.TurnOn(x.saved); err != nil {
			err = errors.Join(err, service.Close())
		}
	}
	if err != nil {
		kernel.Close()
		return err
	}
	x.kernel, x.mptcp = kernel, service
	x.mu.Lock()
	defer x.mu.Unlock()
	x.say("new MPTCP connections get their paths from plait: the kernel's path manager is switched to user space, until plait down")
	return nil
}

func (x *exits) logger(part string) *slog.Logger {
	return slog.New(slog.NewTextHandler(x.log, &slog.HandlerOptions{Level: slog.LevelInfo})).With("egress", part)
}

// openExits puts the lever in place: sessions begin, and routes follow once a reflector has told all of its own. The directory of the control socket outlives the process, not the boot.
func openExits(ctx context.Context, c Egress, control string, log io.Writer) (*exits, error) {
	plan, err := egress.NewPlan(c.Exits)
	if err != nil {
		return nil, err
	}
	x := &exits{config: c, log: log, plan: plan, health: egress.NewHealth(), traffic: egress.NewTraffic[bpf.FlowKey](), networks: egress.NewNetworks(), brownouts: egress.NewBrownouts(), shares: egress.NewShares(), saved: control + pathManagerSuffix, telling: newTelling(time.Now()), quiet: time.NewTimer(settleAfter), begun: make(chan struct{}), journal: newJournal(), byExit: map[string]map[bool]netip.Addr{}}
	x.memory = memoryOf(control)
	x.aside, x.asking, x.overdue, x.stalls, x.undone = map[putAside]time.Time{}, map[netip.Prefix]asked{}, make(chan mptcp.Ends, 1024), make(chan struct{}, 1), make(chan struct{}, 1)
	x.outages, x.inquired, x.misplaced = egress.NewOutages(), map[string]bool{}, make(chan struct{}, 1)
	x.choice = newChoice(&c, x.remember())
	for _, e := range c.Exits {
		x.byExit[e.Name] = map[bool]netip.Addr{}
		for _, a := range e.Addresses {
			x.byExit[e.Name][a.Is4()] = a
		}
	}
	config := bgp.Config{AS: c.AS, RouterID: c.RouterID, Log: x.logger("bgp")}
	for _, r := range c.Reflectors {
		password, err := r.password()
		if err != nil {
			return nil, err
		}
		keys, err := r.secrets()
		if err != nil {
			return nil, err
		}
		one := bgp.Reflector{Address: r.Address, Password: password, AOKeys: keys, MaxPrefixes: r.MaxPrefixes}
		if r.Address.Is6() {
			one.LocalAddress = c.Address
		}
		config.Reflectors = append(config.Reflectors, one)
	}
	if c.Mode == On {
		if err := x.openKernel(control); err != nil {
			return nil, err
		}
	}
	sources := []netip.Addr{c.Address}
	for _, e := range c.Exits {
		sources = append(sources, e.Addresses...)
	}
	if x.flows, err = openFlows(c.Interface, sources, x.services.numbers); err != nil {
		x.unwatched = firstLine(err)
		x.logf("flows are not measured, and failures of exits are left to BGP: %v", err)
	}
	if err = keep(daemonKeeps); err == nil { // before anything is heard from the network
		x.speaker, err = bgp.Start(ctx, config, x.handle)
	}
	if err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

// close takes everything back. The context of the sessions, and of run, has ended.
func (x *exits) close() error {
	var err error
	if x.flows != nil {
		err = x.flows.Close() // which ends those who listen to it
	}
	if x.mptcp != nil {
		err = errors.Join(err, x.mptcp.Close())
	}
	if x.speaker != nil {
		x.speaker.Wait()
	}
	x.running.Wait()
	x.keep()
	x.writing.Lock()
	defer x.writing.Unlock()
	if x.kernel == nil {
		return err
	}
	err = errors.Join(err, takeBack(x.kernel, x.saved))
	x.kernel.Close()
	x.kernel = nil
	return err
}

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"plait.dev/plait/bpf"
)

// Why the kernel half follows a socket (SOCK_* in bpf/sock.h); 0 if it does not.
const (
	kindManaged  = 1
	kindHoldout  = 2
	kindObserved = 3
)

// question puts a name into the kernel half's words.
func (n socketName) question() bpf.Question {
	q := bpf.Question{Cookie: n.cookie}
	if n.one.IsValid() {
		q.One, q.OnePort = n.one.Addr().As16(), n.one.Port()
	}
	if n.other.IsValid() {
		q.Other, q.OtherPort = n.other.Addr().As16(), n.other.Port()
	}
	return q
}

// find looks for a connection, managed or not, in all network namespaces.
func (k *kernel) find(n socketName) (a bpf.Answer, err error) {
	if err := errors.Join(k.Variables["plait_asked"].Set(n.question()), k.Variables["plait_found"].Set(a)); err != nil {
		return a, fmt.Errorf("ask for a connection: %w", err)
	}
	if err := k.pass(passFind); err != nil {
		return a, err
	}
	if err := k.Variables["plait_found"].Get(&a); err != nil {
		return a, fmt.Errorf("read what was found of a connection: %w", err)
	}
	return a, nil
}

// unmanaged says why a connection that is there and of which the daemon has no samples has the congestion control it has. remote is its peer.
func (d *Daemon) unmanaged(a bpf.Answer, remote netip.Addr) string {
	p := d.policies[min(int(a.Policy), len(d.policies)-1)]
	prefix, _ := remote.Prefix(48)
	if remote.Is4() {
		prefix, _ = remote.Prefix(24)
	}
	back, reverted := d.reverted[destination{prefix, p.name}]
	switch {
	case a.InCgroup == 0:
		return "it is not of cgroup " + shownCgroup(d.config.Cgroup) + ", whose connections plait takes"
	case p.lever.Mode == Off && p.rule != "":
		return "switched off by rule " + p.rule
	case p.lever.Mode == Off:
		return "switched off: mode is off for connections no rule is for"
	case reverted && a.Kind != kindManaged && a.Name == d.kernel.control.Fallback:
		return fmt.Sprintf("%s is given back since %s: bursts took %.2f times as long with policy %s as on the system's default",
			prefix, byClock(back.RevertedAt, time.Now()).Format(time.RFC3339), back.Difference.Ratio, under(p))
	case a.Kind == kindHoldout && (a.Name != d.kernel.control.Fallback || a.Chosen != 0):
		return "held out until its application chose that, or the system's default was changed: its bursts are no longer compared"
	case a.Kind == kindHoldout:
		return "held out: it stays on the system's default, and those that plait manages are compared with it"
	case a.Kind == kindManaged && name16(a.Name) == bpf.Name, a.Kind == kindObserved:
		return "it has sent nothing yet, or not for 10 minutes, so there is nothing to tell"
	case a.Kind == kindManaged:
		return "it was plait's until its application chose that"
	case p.lever.Mode == Observe && a.Name == d.kernel.control.Fallback && (a.Known != 0 || a.Chosen == 0): // plait, too, sets it as applications do
		return "it is older than mode observe, which measures connections made since"
	case a.Known != 0:
		return "it was to be plait's, or was, and is not: the kernel refused, its application has chosen that, or it was held out before the share was changed and has not been found since"
	case a.Chosen != 0 || a.Name != d.kernel.control.Fallback:
		return "its application, or the route, has chosen that, or it is the default of its network namespace, and plait's own has another"
	}
	return "left alone: it was there before plait, or was made while plait did not look"
}

// under names a policy and its rule.
func under(p policy) string {
	if p.rule == "" {
		return p.lever.Policy
	}
	return p.lever.Policy + ", rule " + p.rule
}

// whyNot says why the daemon has no samples of a connection.
func (d *Daemon) whyNot(name string) error {
	n, err := parseSocket(name)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.kernel.takes {
		return &missing{fmt.Sprintf("find socket %s: plait manages no connection: congestion was off for all of them when it came up", name)}
	}
	a, err := d.kernel.find(n)
	if err == nil && a.Found == 0 && n.other.IsValid() { // then the local end is the other
		a, err = d.kernel.find(socketName{one: n.other, other: n.one})
	}
	if err != nil {
		return &failing{fmt.Errorf("find socket %s: %w", name, err)}
	}
	switch a.Found {
	case 0:
		return &missing{fmt.Sprintf("find socket %s: %v in any network namespace that plait finds; ss -tie lists those of one", name, ErrNoSocket)}
	case 1:
		f := flowOf(a.Flow)
		return &missing{fmt.Sprintf("find socket %s: plait has nothing of %s-%s, which uses %s: %s",
			name, f.Local, f.Remote, cmp.Or(name16(a.Name), "none"), d.unmanaged(a, f.Remote.Addr()))}
	}
	return &missing{fmt.Sprintf("find socket %s: %d connections have this end, and plait manages none of them; name one by both its ends, or its cookie, as ss -te shows them, for the reason", name, a.Found)}
}

// Why implements Controlled.
func (d *Daemon) Why(name string) (SocketStatus, error) {
	s, err := d.Status().FindSocket(name)
	if errors.Is(err, ErrNoSocket) {
		err = d.whyNot(name)
	}
	return s, err
}

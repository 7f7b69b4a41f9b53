package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/signals"
)

// reload puts another configuration in force.
func (h *host) reload(p *process, congestion string) {
	h.Helper()
	h.write(p.config, p.Path(), congestion)
	h.must(p.Reload())
}

// sends makes the server send, so that its end sees its rules: at is how much was sent before.
func (h *host) sends(p pair, at int) {
	h.Helper()
	for i := range 3 {
		h.must(send(p.server, at+i*1000, 1000))
		h.must(receive(p.client, at+i*1000, 1000))
	}
}

// buffer is SetWriteBuffer or SetReadBuffer, which stop at 208 KiB where the kernel is older than 6.18.
func (h *host) buffer(c *net.TCPConn, option, bytes int) {
	h.Helper()
	raw, err := c.SyscallConn()
	h.must(err)
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, bytes) })
	h.must(errors.Join(err, set))
}

// stalls has the server write so many bytes, of which most wait, as nobody reads them.
func (h *host) stalls(p pair, bytes int) {
	h.Helper()
	h.must(p.client.SetReadBuffer(64 << 10))
	h.buffer(p.server, unix.SO_SNDBUFFORCE, 8<<20)
	h.must(send(p.server, 0, bytes))
}

// wanted is what the daemon has decided for the connection with this end; "" if it knows nothing of it.
func (h *host) wanted(p *process, local string) (policy, algorithm string) {
	h.Helper()
	for _, s := range h.status(p).Sockets {
		if s.Local.String() == local {
			return s.Policy, s.Algorithm
		}
	}
	return "", ""
}

// A configuration with mistakes changes nothing; one without is for connections that exist as for new ones.
func TestReload(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	open, own := h.connect(portNew, ""), h.connect(portNew, systemDefault)
	h.uses("before", open, bpf.Name, bpf.Name)
	h.write(p.config, p.Path(), fmt.Sprintf("  holdout_percent: 100\n  rules:\n    - {port: %d, mode: of}", portNew))
	want := p.config + ":7:26: mode: of: expected off?"
	if err := p.Reload(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("reload with a mistake: got %v, want %s", err, want)
	}
	h.uses("after a mistake", h.connect(portNew, ""), bpf.Name, bpf.Name)
	if s := h.status(p); s.HoldoutPercent != 0 || s.Rules != 0 {
		t.Errorf("after a mistake the status is %+v, want the old configuration", s)
	}
	h.reload(p, fmt.Sprintf("%s\n  rules:\n    - {port: %d, mode: off}", takeAll, portNew))
	h.uses("with the new rule", h.connect(portNew, ""), bpf.Name, systemDefault)
	h.uses("open since before the rule", open, bpf.Name, systemDefault)
	h.transfers("open since before the rule", open)
	h.reload(p, "  mode: off")
	h.uses("mode off", open, systemDefault, systemDefault)
	h.reload(p, takeAll)
	h.uses("without the rule again", h.connect(portNew, ""), bpf.Name, bpf.Name)
	h.uses("open all the time", open, bpf.Name, bpf.Name)
	h.uses("the default, chosen by the application", own, systemDefault, systemDefault)
	h.transfers("open all the time", open)
}

// A connection that stays has the policy of its rule, also if the rule is another, or at another place, than before.
func TestReloadMovesRules(t *testing.T) {
	h := newHost(t)
	rule := func(port int, algorithm string) string {
		return fmt.Sprintf("\n    - {port: %d, policy: fixed:%s}", port, algorithm)
	}
	p := h.up(takeAll + "\n  policy: fixed:bic\n  rules:" + rule(portOff, "hybla") + rule(portNew, "htcp"))
	one, two, none := h.connect(portOff, ""), h.connect(portNew, ""), h.connect(0, "")
	at := 0
	follow := func(what string, want map[*pair]string) {
		t.Helper()
		h.eventually(10*time.Second, what, func() bool {
			ok := true
			for c, algorithm := range want {
				h.sends(*c, at)
				policy, uses := h.wanted(p, c.server.LocalAddr().String())
				ok = ok && policy == "fixed:"+algorithm && uses == algorithm
			}
			at += 3000
			time.Sleep(minSampleEvery / 4)
			return ok
		})
	}
	follow("each by its rule", map[*pair]string{&one: "hybla", &two: "htcp", &none: "bic"})
	h.reload(p, takeAll+"\n  policy: fixed:reno\n  rules:"+rule(portNew, "vegas")+rule(portOff, "scalable"))
	follow("each by its rule in another place", map[*pair]string{&one: "scalable", &two: "vegas", &none: "reno"})
	h.reload(p, takeAll+"\n  policy: fixed:cubic\n  rules:"+rule(portNew, "westwood"))
	follow("one without its rule", map[*pair]string{&one: "cubic", &two: "westwood", &none: "cubic"})
	// The comparison has begun anew: of the policies of now alone, and each sender counts once in it.
	connections := map[string]uint64{}
	for _, d := range h.status(p).Prefixes {
		connections[d.Policy] = d.Managed.Connections
	}
	if want := map[string]uint64{"fixed:cubic": 2, "fixed:westwood": 1}; !maps.Equal(connections, want) {
		t.Errorf("connections compared are %v, want %v", connections, want)
	}
}

// A prefix that holds all of IPv6 is for IPv6, although the kernel half keeps IPv4 inside it.
func TestRuleForIPv6(t *testing.T) {
	h := newHost(t)
	connect := func(address string) pair {
		c, err := h.connectTo(address, 0, h.ns, "")
		h.must(err)
		h.Cleanup(c.close)
		return c
	}
	p := h.up(takeAll + "\n  rules:\n    - {prefix: '::/0', mode: off}")
	h.uses("IPv6", connect("::1"), systemDefault, systemDefault)
	h.uses("IPv4", connect("127.0.0.1"), bpf.Name, bpf.Name)
	h.reload(p, takeAll+"\n  rules:\n    - {prefix: '::/0', policy: fixed:bic}\n    - {prefix: 0.0.0.0/0, mode: off}")
	h.uses("IPv6 has another policy", connect("::1"), bpf.Name, bpf.Name)
	h.uses("IPv4 has a rule", connect("127.0.0.1"), systemDefault, systemDefault)
	h.reload(p, takeAll+fmt.Sprintf("\n  mode: off\n  rules:\n    - {prefix: '::/0', mode: off}\n    - {cgroup: %s, mode: on}", h.cgroup))
	h.uses("IPv4 has a rule by cgroup", connect("127.0.0.1"), bpf.Name, bpf.Name)
}

// A connection that asked for plait stays when rules go, and the daemon does not look for the policy it had.
func TestAskedOutlivesRule(t *testing.T) {
	h := newHost(t)
	p := h.up(fmt.Sprintf("%s\n  rules:\n    - {port: %d, policy: fixed:bic}", takeAll, portNew))
	c := h.connect(portNew, bpf.Name)
	follow := func(policy string) {
		t.Helper()
		h.eventually(20*time.Second, "the daemon has it under "+policy, func() bool {
			h.must(transfer(c, 1000))
			now, _ := h.wanted(p, c.server.LocalAddr().String())
			return now == policy
		})
	}
	follow("fixed:bic")
	h.reload(p, "  mode: off\n  policy: fixed:reno")
	follow("fixed:reno")
	h.uses("after the rule", c, bpf.Name, bpf.Name)
}

// A burst that was on its way when its connection left is not timed when it is taken again.
func TestTakenAgain(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	c := h.connect(0, "")
	const waits, away = 4 << 20, time.Second
	h.stalls(c, waits)
	h.reload(p, "  mode: off")
	h.uses("mode off", c, systemDefault, systemDefault)
	h.must(receive(c.client, 0, waits))
	time.Sleep(away)
	h.reload(p, takeAll)
	h.uses("on again", c, bpf.Name, bpf.Name)
	h.sends(c, waits)
	for _, d := range h.status(p).Prefixes {
		if d.Managed.P95Ms > float64(away.Milliseconds()) {
			t.Errorf("95 %% of the bursts took less than %.0f ms, want less than it was away", d.Managed.P95Ms)
		}
	}
	if len(h.status(p).Prefixes) == 0 {
		t.Error("no burst was timed")
	}
}

// A sample that was on its way during a reload says nothing about the policy of now.
func TestReloadOldSamples(t *testing.T) {
	h := newHost(t)
	d := h.inside(takeAll+"\n  policy: rtcp", new(bytes.Buffer))
	s := sample{generation: d.kernel.control.Generation, Sample: signals.Sample{Cookie: 1}}
	h.must(d.install(d.config))
	h.must(d.act(s))
	if n := len(d.Status().Sockets); n != 0 {
		t.Errorf("the daemon remembers %d connections by an old sample, want none", n)
	}
	s.generation = d.kernel.control.Generation
	h.must(d.act(s))
	if n := len(d.Status().Sockets); n != 1 {
		t.Errorf("the daemon remembers %d connections by a new sample, want 1", n)
	}
}

// The signal log says where all policies began anew, at the start and with another configuration: a replay of several runs, or over a reload, knows no more than the daemon did.
func TestSignalLogSaysAnew(t *testing.T) {
	h := newHost(t)
	d := h.inside(takeAll, new(bytes.Buffer))
	var signalLog strings.Builder
	d.options.SignalLog = &signalLog
	hear := func(when string, closed, want bool) {
		t.Helper()
		signalLog.Reset()
		h.must(d.act(sample{generation: d.kernel.control.Generation, Sample: signals.Sample{Cookie: 1, Closed: closed}}))
		if line := signalLog.String(); line == "" || strings.Contains(line, `"anew":true`) != want {
			t.Errorf("%s: %q, want that all began anew: %v", when, line, want)
		}
	}
	hear("the first sample", false, true)
	hear("the second", false, false)
	h.must(d.install(d.config))
	hear("after a reload, of one that has ended", true, true)
	hear("and the next", false, false)
}

// What is known of connections and destinations outlives a reload that changes nothing for connections, and no other.
func TestReloadUnchanged(t *testing.T) {
	h := newHost(t)
	group := filepath.Join(h.cgroup, "below")
	h.must(os.Mkdir(group, 0o755))
	t.Cleanup(func() { h.must(os.Remove(group)) })
	congestion := fmt.Sprintf("%s\n  rules:\n    - {port: %d, holdout_percent: 20}\n    - {cgroup: %s, mode: off}", takeAll, portNew, group)
	d := h.inside(congestion, new(bytes.Buffer))
	learn := func() {
		t.Helper()
		h.must(d.act(sample{generation: d.kernel.control.Generation, Sample: signals.Sample{Cookie: 1}}))
		h.slowerMany(d, 1)
	}
	reload := func(what string, known int) {
		t.Helper()
		h.in(d.Reload)
		if s := d.Status(); len(s.Sockets) != known || len(s.Prefixes) != known {
			t.Errorf("%s: %d connections and %d destinations are known, want %d of each", what, len(s.Sockets), len(s.Prefixes), known)
		}
	}
	learn()
	reload("the same file", 1)
	h.write(d.options.ConfigPath, h.dir+"/control", congestion+"\nackpath: {answer: off}")
	reload("another section", 1)
	if d.config.Ackpath.Answer != Off {
		t.Error("the other section is not in force")
	}
	h.must(errors.Join(os.Remove(group), os.Mkdir(group, 0o755)))
	reload("a cgroup made again", 0)
	learn()
	h.write(d.options.ConfigPath, h.dir+"/control", strings.Replace(congestion, "20", "21", 1))
	reload("a rule with another share", 0)
}

// Connections of other network namespaces are under the new rules, too: at once, or when they send if the pass cannot find them.
func TestReloadOtherNamespace(t *testing.T) {
	h := newHost(t)
	other, hidden := h.second("-2"), h.second("-3")
	p := h.up(takeAll)
	c, lost := other.connect(portNew, ""), hidden.connect(portNew, "")
	h.ip("netns del " + hidden.ns) // only its sockets keep it
	h.uses("before", c, bpf.Name, bpf.Name)
	h.reload(p, fmt.Sprintf("%s\n  rules:\n    - {port: %d, mode: off}", takeAll, portNew))
	h.uses("with a rule", c, bpf.Name, systemDefault)
	h.uses("of a namespace without a name", lost, bpf.Name, bpf.Name)
	h.sends(lost, 0)
	h.uses("of a namespace without a name, after it has sent", lost, bpf.Name, systemDefault)
	h.reload(p, takeAll)
	h.uses("without the rule again", c, bpf.Name, bpf.Name)
}

// Going down is not undone by reloads that are asked for at the same time.
func TestReloadWhileDown(t *testing.T) {
	h := newHost(t)
	var pairs []pair
	for range 100 {
		pairs = append(pairs, h.connect(0, ""))
	}
	for range 5 {
		p := h.up(takeAll)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for p.Reload() == nil { // until it is gone
				}
			})
		}
		_, err := p.Stop(t.Context())
		all.Wait()
		h.must(err)
		for _, c := range pairs {
			h.uses("after down", c, systemDefault, systemDefault)
		}
		if t.Failed() {
			return
		}
	}
}

// Rules with the same policy are told apart, by what they are for.
func TestRulesInStatus(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll + fmt.Sprintf("\n  rules:\n    - {port: %d, holdout_percent: 0}\n    - {ports: [%d, %d]}", portOff, portNew, portMany))
	want := map[string]string{}
	for port, rule := range map[int]string{portOff: "port 5301", portNew: "port 5302 5303", 0: ""} {
		c := h.connect(port, "")
		want[c.server.LocalAddr().String()] = rule
		h.sends(c, 0)
	}
	got := map[string]string{}
	h.eventually(20*time.Second, "the daemon has heard of all three", func() bool {
		for _, s := range h.status(p).Sockets {
			if _, server := want[s.Local.String()]; server {
				got[s.Local.String()] = s.Rule
			}
		}
		return len(got) == len(want)
	})
	if !maps.Equal(got, want) {
		t.Errorf("rules of the connections: got %v, want %v", got, want)
	}
	rules := map[string]bool{}
	for _, s := range h.status(p).Prefixes {
		rules[s.Rule] = true
	}
	if len(rules) != len(want) {
		t.Errorf("rules of the destination: %v, want three", rules)
	}
}

// A configuration that the kernel takes only half leaves the old one in force.
func TestReloadFails(t *testing.T) {
	h := newHost(t)
	d := h.inside(fmt.Sprintf("%s\n  rules:\n    - {port: %d, mode: off}\n    - {prefix: 192.0.2.0/24, mode: off}", takeAll, portOff), new(bytes.Buffer))
	h.small(d, "plait_prefixes", 1) // no connection here needs the kernel half's own
	c := d.config
	h.must(d.install(c))
	open := h.connect(0, "")
	h.write(d.options.ConfigPath, c.Control, fmt.Sprintf("  mode: off\n  rules:\n    - {port: %d, mode: on}\n    - {prefixes: [192.0.2.0/24, 198.51.100.0/24], mode: on}", portNew))
	h.in(func() error {
		if err := d.Reload(); err == nil || !errors.Is(err, ErrFailed) || !strings.HasSuffix(err.Error(), "; the old one is in force again") {
			t.Errorf("got %v, want that the old configuration is in force", err)
		}
		return nil
	})
	h.uses("open", open, bpf.Name, bpf.Name)
	h.sends(open, 0)
	h.uses("open, after it has sent", open, bpf.Name, bpf.Name)
	h.uses("new", h.connect(0, ""), bpf.Name, bpf.Name)
	h.uses("to a port that is off", h.connect(portOff, ""), bpf.Name, systemDefault)
	if s := d.Status(); s.Mode != On || s.Rules != 2 {
		t.Errorf("status %+v, want the old configuration", s)
	}
	entries := map[prefixKey]uint32{}
	var key prefixKey
	var value uint32
	for it := d.kernel.Maps["plait_prefixes"].Iterate(); it.Next(&key, &value); {
		entries[key] = value
	}
	if len(entries) != 1 || entries[keyOf(c.Congestion.Rules[1].Prefixes[0])] != 2 {
		t.Errorf("rules by prefix are %v, want 192.0.2.0/24 under policy 2", entries)
	}
}

// A hangup reloads like the command; the log says how both went, and what ended the daemon.
func TestHangup(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	h.write(p.config, p.Path(), "  mode: observe")
	h.must(p.cmd.Process.Signal(unix.SIGHUP))
	h.eventually(10*time.Second, "the new configuration is in force", func() bool { return h.status(p).Mode == Observe })
	h.write(p.config, p.Path(), "  mode: maybe")
	if err := p.Reload(); err == nil || h.status(p).Mode != Observe {
		t.Errorf("a configuration with a mistake: %v, mode %s", err, h.status(p).Mode)
	}
	_, err := p.Stop(t.Context())
	h.must(errors.Join(err, p.cmd.Wait()))
	mistake := "reload: " + p.config + ":5:9: mode: maybe: expected off, observe or on\n"
	outline := func(mode string) string {
		return "configuration " + p.config + ", congestion " + mode + " (policy plait, 0 rules), egress off, ackpath off\n"
	}
	if want := "plait test is up: " + outline("on") + "reload: now in force: " + outline("observe") + mistake + "plait goes down: plait down\n"; p.said.String() != want {
		t.Errorf("the log:\n%swant\n%s", &p.said, want)
	}
}

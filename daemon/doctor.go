package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"plait.dev/plait/ackpath"
	"plait.dev/plait/bpf"
	"plait.dev/plait/egress/bgp"
	"plait.dev/plait/egress/check"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/egress/route"
)

// Health is how a check came out.
type Health string

// The outcomes. Fail is what plait cannot do without; Warn is what it does worse without; Info is good to know.
const (
	OK   Health = "ok"
	Info Health = "info"
	Warn Health = "warn"
	Fail Health = "fail"
)

// Check is one thing plait needs or meets on a host.
type Check struct {
	Name   string `json:"name"`
	Health Health `json:"health"`
	Found  string `json:"found"`
	// Do is what to do about it; empty if nothing.
	Do string `json:"do,omitempty"`
}

// Usable says whether plait can work on the host.
func Usable(checks []Check) bool {
	for _, c := range checks {
		if c.Health == Fail {
			return false
		}
	}
	return true
}

// Bits of a capability set, include/uapi/linux/capability.h.
const (
	capNetAdmin = 12
	capSysAdmin = 21
	capPerfmon  = 38
	capBPF      = 39
)

// missingCapabilities reads the effective ones in the text of /proc/self/status.
func missingCapabilities(status string) (missing []string, err error) {
	_, rest, found := strings.Cut(status, "CapEff:")
	hex, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
	if !found || err != nil {
		return nil, errors.New("read effective capabilities: /proc/self/status has no CapEff")
	}
	has := func(bit int) bool { return set>>bit&1 == 1 }
	for _, c := range []struct {
		bit  int
		name string
	}{{capBPF, "CAP_BPF"}, {capPerfmon, "CAP_PERFMON"}, {capNetAdmin, "CAP_NET_ADMIN"}} {
		// CAP_SYS_ADMIN includes the two younger ones, which were split off it.
		if !has(c.bit) && !(c.bit != capNetAdmin && has(capSysAdmin)) {
			missing = append(missing, c.name)
		}
	}
	return missing, nil
}

func checkPrivilege(status string) Check {
	missing, err := missingCapabilities(status)
	switch {
	case err != nil:
		return Check{"privilege", Fail, err.Error(), "mount /proc"}
	case len(missing) > 0:
		return Check{"privilege", Fail, "without " + strings.Join(missing, ", "), "run plait as root; in a container, give it these"}
	}
	return Check{"privilege", OK, "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN", ""}
}

// probeBPF tries whether the kernel lets this process load a program: the capabilities of a user namespace are not enough for that.
func probeBPF() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return err
	}
	return p.Close()
}

// checkBPF is about who has the capabilities.
func checkBPF(err error) Check {
	return Check{"privilege", Fail, "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, but the kernel takes no program: " + strings.ReplaceAll(firstLine(err), memlockHint, ""),
		"a user namespace, a seccomp filter or a security module forbids it: run plait on the host and not in a container, and see the kernel's log"}
}

// checkKernel looks in the kernel's own type information for what struct_ops needs. Nothing is loaded: that would register.
func checkKernel(types *btf.Spec, err error) []Check {
	if err != nil {
		return []Check{{"type information", Fail, fmt.Sprintf("/sys/kernel/btf/vmlinux: %v", err),
			"use a kernel built with CONFIG_DEBUG_INFO_BTF, as Debian's are"}}
	}
	checks := []Check{{"type information", OK, "/sys/kernel/btf/vmlinux", ""}}
	var ops *btf.Struct
	if types.TypeByName("bpf_struct_ops_tcp_congestion_ops", &ops) != nil {
		return append(checks, Check{"congestion control in BPF", Fail, "the kernel has no bpf_struct_ops_tcp_congestion_ops",
			"use Linux 6.1 or newer with CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT, as Debian 12 and 13 have"})
	}
	checks = append(checks, Check{"congestion control in BPF", OK, "struct_ops takes tcp_congestion_ops", ""})
	var link *btf.Func
	if types.TypeByName("bpf_struct_ops_link_create", &link) != nil {
		return append(checks, Check{"clean end", Warn, "no links to struct_ops (they are there from Linux 6.4 on): the registration outlives a daemon that is killed",
			"connections return by themselves within seconds; plait down removes the registration"})
	}
	return append(checks, Check{"clean end", OK, "the registration hangs on a link and goes with the daemon", ""})
}

func checkTracing(err error) Check {
	if err != nil {
		return Check{"comparison", Warn, "programs cannot be put at the entry of kernel functions: " + firstLine(err),
			"plait works, but bursts of held-out connections are not timed, so nothing tells whether it helps; where the kernel lacks what it takes, " +
				"use one with CONFIG_FUNCTION_TRACER and CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS"}
	}
	return Check{"comparison", OK, "bursts of held-out connections can be timed", ""}
}

// firstLine of an error; the verifier's go on for pages.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// checkCgroup is about what is needed to take new connections.
func checkCgroup(takes bool, mount string, err error) Check {
	switch {
	case err != nil && !takes:
		return Check{"cgroup v2", Info, "none, and congestion, which alone needs it, is off", ""}
	case err != nil:
		return Check{"cgroup v2", Fail, "none", err.Error()}
	}
	return Check{"cgroup v2", OK, shownCgroup(mount), ""}
}

// checkUp says whether plait is up, from whether the kernel knows the congestion control, whether that goes with its process, whether somebody has the BGP exits, and
// whether a daemon answers.
func checkUp(registered, linked, exits bool, version string, err error) Check {
	switch {
	case err == nil:
		return Check{"plait", OK, "up, version " + version, ""}
	case errors.Is(err, fs.ErrPermission):
		return Check{"plait", Warn, firstLine(err), "run this as root, on the host plait is on"}
	case !errors.Is(err, ErrNotRunning):
		return Check{"plait", Warn, firstLine(err), ""}
	case registered && linked:
		return Check{"plait", Warn, "another plait is up, with another control socket: the kernel has its congestion control", "name its control socket with --control PATH" + orKill}
	case exits:
		return Check{"plait", Warn, "another plait is up, with another control socket: it has the BGP exits of this network namespace", "name its control socket with --control PATH" + orKill}
	case registered:
		return Check{"plait", Warn, "no daemon, but the kernel still has the congestion control of an earlier one", "remove it with plait down"}
	}
	return Check{"plait", OK, "not up", ""}
}

// checkDefault is about the congestion control plait compares with and returns connections to.
func checkDefault(name string) Check {
	switch name {
	case "plait":
		return Check{"system's default", Fail, "plait: there is nothing to compare with and to return to", "sysctl -w net.ipv4.tcp_congestion_control=cubic"}
	case "":
		return Check{"system's default", Warn, "not readable", "mount /proc"}
	}
	return Check{"system's default", Info, name, ""}
}

func checkIdle(value string) Check {
	found := "tcp_slow_start_after_idle is " + value
	if value == "1" {
		found += ": windows shrink while a connection is idle, which is why its next burst is slow"
	}
	return Check{"idle connections", Info, found, ""}
}

func checkQdisc(name string) Check {
	if name == "" {
		return Check{"queueing discipline", Info, "not readable in this network namespace; plait paces by itself, with fq and without", ""}
	}
	return Check{"queueing discipline", Info, name + " by default; plait paces by itself, with fq and without", ""}
}

// checkLevers is about what only some hosts need. To find out takes the rights that plait itself needs: without them everything would be missing.
// wanted says that the configuration has ACKs copied.
func checkLevers(privileged, wanted bool, acks AckpathStatus, up bool) []Check {
	if privileged {
		copied := checkAckpath(acks, up)
		if wanted && copied.Health == Info {
			copied.Health = Warn
		}
		return []Check{checkEgress(), copied}
	}
	const untried, do = "not known: trying needs the rights that plait itself needs", "run plait doctor as root; in a container, give it these rights"
	return []Check{{"BGP exits", Info, untried, do}, {"copied ACKs", Info, untried, do}}
}

// checkEgress is about what only hosts with BGP exits need.
func checkEgress() Check {
	var lacks, do []string
	for _, a := range route.Probe() {
		if a.Err != nil {
			lacks = append(lacks, a.Err.Error())
		}
	}
	for _, l := range mptcp.Probe() {
		lacks, do = append(lacks, l.What), append(do, l.Do)
	}
	if f, err := openFlows("lo", nil, nil); err != nil {
		lacks = append(lacks, err.Error()+"; failures of exits are left to BGP")
	} else {
		f.Close()
	}
	if len(lacks) == 0 {
		ao := "and TCP-AO"
		if !bgp.HasAO() {
			ao = "but no TCP-AO, which Linux 6.7 or newer with CONFIG_TCP_AO has"
		}
		return Check{"BGP exits", OK, "the kernel has the SRv6 routes, the MPTCP path manager and the packet hooks that egress needs, " + ao, ""}
	}
	return Check{"BGP exits", Info, "egress lacks: " + strings.Join(lacks, "; "), strings.Join(do, "; ")}
}

// checkAckpath is about what ACKs over a quicker link need, of a host that receives and of one that sends. s is what the daemon says, if it is up.
func checkAckpath(s AckpathStatus, up bool) Check {
	const name = "copied ACKs"
	if setting("/proc/sys/net/mptcp/enabled") != "1" {
		return Check{name, Info, "none: MPTCP is switched off, or the kernel has none", "sysctl -w net.mptcp.enabled=1"}
	}
	if _, err := mptcp.Flows(); err != nil {
		return Check{name, Info, "none: " + err.Error(), "load the module tcp_diag, or use a kernel with CONFIG_INET_DIAG"}
	}
	programs, _, err := openAckPrograms(nil, ackpath.Port)
	if err == nil {
		err = errors.Join(programs.probeTCX(), programs.Close())
	}
	if err != nil {
		return Check{name, Info, "none: " + firstLine(err), "use Linux 6.6 or newer, which can attach programs to packets (tcx)"}
	}
	switch {
	case s.Silent != "":
		return Check{name, Warn, firstLine(errors.New(s.Silent)), "end what has it and run plait reload, or name another port as port in the section ackpath, here and on the hosts that receive"}
	case up && s.Answers:
		return Check{name, OK, fmt.Sprintf("taken on UDP port %d; where a firewall is, it must let that port in", s.Port), ""}
	}
	return Check{name, OK, "MPTCP and the packet hooks are there; a host that sends takes them on a UDP port that firewalls must let in", ""}
}

// CheckConfig is about a configuration file, from what ReadConfig made of it.
func CheckConfig(path string, c Config, err error) Check {
	const name = "configuration"
	if err != nil {
		found := firstLine(err)
		if more := strings.Count(err.Error(), "\n"); more > 0 {
			found += fmt.Sprintf("; and %d more", more)
		}
		return Check{name, Fail, found, ""}
	}
	if _, missing := os.Stat(path); missing != nil {
		return Check{name, Info, "there is no " + path + ": all is as by default", ""}
	}
	modes := fmt.Sprintf("congestion %v", c.Congestion.Mode)
	if n := len(c.Congestion.Rules); n > 0 {
		modes += fmt.Sprintf(" (rules: %d)", n)
	}
	return Check{name, OK, fmt.Sprintf("%s: %s, egress %v, ackpath %v", path, modes, cmp.Or(c.Egress.Mode, Off), c.Ackpath.Mode), ""}
}

// setting is a file of one line, or "" if there is none.
func setting(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}

// Doctor checks the host for what a configuration needs. It changes nothing; the daemon, if it is up, is asked at the path of its control socket.
func Doctor(c Config) []Check {
	status := setting("/proc/self/status")
	checks := []Check{checkPrivilege(status)}
	if Usable(checks) {
		if err := probeBPF(); err != nil {
			checks[0] = checkBPF(err)
		}
	}
	privileged := Usable(checks)
	types, err := btf.LoadKernelSpec()
	checks = append(checks, checkKernel(types, err)...)
	if Usable(checks) {
		checks = append(checks, checkTracing(probeTracing()))
	}
	mount, err := findCgroup()
	checks = append(checks, checkCgroup(c.takes(), mount, err))
	_, linked, _ := bpf.Load() // what is missing has been said
	s, err := Client(c.Control).Status()
	var acks AckpathStatus
	if err == nil {
		acks, _ = Client(c.Control).Ackpath("") // one of an older version knows nothing of it
	}
	checks = append(checks, checkUp(registered(), linked, exitsLocked(), s.Version, err))
	checks = append(checks, checkLevers(privileged, c.Ackpath.Mode != Off, acks, err == nil)...)
	checks = append(checks, checkSecrets(c.Egress)...)
	checks = append(checks, checkInterface(c.Egress)...)
	checks = append(checks, checkReversePath(c.Egress, check.Settings)...)
	return append(checks,
		checkDefault(setting(current)),
		checkIdle(setting("/proc/sys/net/ipv4/tcp_slow_start_after_idle")),
		checkQdisc(setting("/proc/sys/net/core/default_qdisc")))
}

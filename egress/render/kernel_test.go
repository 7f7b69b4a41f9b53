package render

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plait.dev/plait/egress"
)

// standIns for the commands of kernel.sh: they keep sysctls in files, interfaces in directories and rules in a list, and write down what they were told.
const standIns = `
sysctl() {
	case $1 in
	-n) cat "$sys/$2" ;;
	-qw) echo "sysctl $2" >>"$log"; echo "${2#*=}" >"$sys/${2%%=*}" ;;
	esac
}
ip() {
	case $* in
	"link show dev"*) [ -e "$class/$4" ]; return ;;
	"-o link show dev"*) [ -e "$class/$5" ] && echo "7: $5: <UP> mtu $(cat "$class/$5/mtu") qdisc noop $(sed 's/^/master /' "$class/$5/master" 2>/dev/null) state UP"; return ;;
	*" route show "*) echo "$4 dev csp"; return ;;
	*" rule show priority"*) ! grep "^$1 iif $7 .* priority $5$" "$sys/rules"; return 0 ;;
	*" rule add"*) r=$1; shift 3; echo "$r $*" >>"$sys/rules"; set -- "$r" rule add "$@" ;;
	*" rule del"*) r=$1; shift 3; grep -vxF -e "$r $*" "$sys/rules" >"$sys/left" || :; mv "$sys/left" "$sys/rules"; set -- "$r" rule del "$@" ;;
	"link add dev"*) mkdir "$class/$4" || return ;;
	"link del dev"*) rm -r "$class/$4" ;;
	"link set dev"*" master "*) echo "$6" >"$class/$4/master" ;;
	"link set dev"*" nomaster") rm "$class/$4/master" ;;
	esac
	echo "ip $*" >>"$log"
}
modprobe() { :; }
`

// host is where a script runs against the stand-ins.
type host struct {
	*testing.T
	dir, script string
}

// newHost has sysctls, and interfaces that belong to nothing.
func newHost(t *testing.T, sysctls map[string]string, interfaces ...string) host {
	t.Helper()
	h := host{t, t.TempDir(), ""}
	for key, value := range sysctls {
		h.write("sys/"+key, value)
	}
	for _, i := range interfaces {
		h.write("class/"+i+"/mtu", "1700")
	}
	h.write("sys/rules", "")
	return h
}

func (h host) write(path, line string) {
	h.Helper()
	path = filepath.Join(h.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.TrimLeft(line+"\n", "\n")), 0o644); err != nil {
		h.Fatal(err)
	}
}

// of is the host with the script of a network's first border router.
func (h host) of(n Network) host {
	h.script = strings.NewReplacer("set -eu\n", "set -eu\nsys="+h.dir+"/sys class="+h.dir+"/class log="+h.dir+"/log\n"+standIns,
		"/run/", h.dir+"/run/", "/proc/sys/", h.dir+"/sys/").Replace(n.border(n.BorderRouters[0]).Kernel)
	return h
}

// says runs the script, which tells of a problem, or of none, and returns what it told the commands.
func (h host) says(argument, problem string) []string {
	h.Helper()
	log := filepath.Join(h.dir, "log")
	h.write("log", "")
	out, err := exec.Command("sh", "-c", h.script, "kernel.sh", argument).CombinedOutput()
	if said := strings.TrimSpace(string(out)); (err == nil) != (problem == "") || said != strings.TrimSpace("kernel.sh: "+problem) && problem+said != "" {
		h.Fatalf("kernel.sh %s: %v: %s, want %q", argument, err, out, problem)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		h.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func (h host) run(argument string) []string {
	h.Helper()
	return h.says(argument, "")
}

func (h host) same(what string, got, want []string) {
	h.Helper()
	if !slices.Equal(got, want) {
		h.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func labHost(t *testing.T) host {
	return newHost(t, map[string]string{
		"net/ipv6/conf/all/forwarding": "1", "net/ipv6/conf/all/seg6_enabled": "0", "net/ipv6/conf/csp/seg6_enabled": "0", "net/vrf/strict_mode": "0",
		"net/ipv6/conf/a/keep_addr_on_down": "0"}, "csp", "a")
}

// The script of a border router changes what is not yet as it should be, and takes back what it changed and nothing else.
func TestKernelScript(t *testing.T) {
	h := labHost(t).of(labNetwork())
	routes := []string{"ip -6 route replace 2001:db8:f1::/48 dev exit-1 table 101", "ip -6 route replace 2001:db8:1::/64 dev csp table 101"}
	guards := []string{"ip -6 rule add iif exit-1 to 2001:db8:f1::/48 blackhole priority 100", "ip -6 rule add iif exit-1 to 2001:db8:f2::/48 blackhole priority 101", "ip -6 rule add iif exit-1 unreachable priority 2000", "ip -4 rule add iif exit-1 unreachable priority 2000"}
	rule := []string{"ip -6 rule add iif csp table 101 priority 32800"}
	made, join := []string{"ip link add dev exit-1 type vrf table 101", "ip link set dev exit-1 up"}, []string{"ip link set dev a master exit-1"}
	up := slices.Concat([]string{"sysctl net/ipv6/conf/all/seg6_enabled=1", "sysctl net/ipv6/conf/csp/seg6_enabled=1", "sysctl net/vrf/strict_mode=1"},
		made, guards, []string{"sysctl net/ipv6/conf/a/keep_addr_on_down=1"}, join, routes, rule)
	h.same("up", h.run("up"), up)
	h.same("up again", h.run("up"), slices.Concat(join, routes))
	if err := os.RemoveAll(filepath.Join(h.dir, "class/exit-1")); err != nil {
		t.Fatal(err)
	}
	h.same("up after somebody took the VRF", h.run("up"), slices.Concat(made, join, routes))
	down := []string{strings.Replace(rule[0], "add", "del", 1), "ip -6 route del 2001:db8:1::/64 dev csp table 101", "ip link set dev a nomaster", "sysctl net/ipv6/conf/a/keep_addr_on_down=0"}
	for _, g := range slices.Backward(guards) {
		down = append(down, strings.Replace(g, "add", "del", 1))
	}
	down = append(down, "ip link del dev exit-1", "sysctl net/vrf/strict_mode=0", "sysctl net/ipv6/conf/csp/seg6_enabled=0", "sysctl net/ipv6/conf/all/seg6_enabled=0")
	h.same("down", h.run("down"), down)
	h.same("down again", h.run("down"), []string{""})
	h.same("up once more", h.run("up"), up)
}

// Another exit has the place of one that is gone: its VRF is not given two interfaces, and either script takes all back.
func TestKernelScriptOfAnotherRendering(t *testing.T) {
	n := labNetwork()
	h := labHost(t).of(n)
	h.run("up")
	h.write("class/b/mtu", "1700")
	h.write("sys/net/ipv6/conf/b/keep_addr_on_down", "0")
	n.Exits, n.BorderRouters[0].Peers = n.Exits[1:], n.BorderRouters[1].Peers
	after := h.of(n)
	after.same("up", after.says("up", "no exit-1: an earlier rendering has it with interface and table a 101; stop FRR, run kernel.sh down, and begin anew"), []string{""})
	after.run("down")
	if left, err := os.ReadFile(filepath.Join(h.dir, "sys/rules")); err != nil || len(left) > 0 {
		t.Errorf("rules are left: %s, %v", left, err)
	}
	after.run("up")
	n = labNetwork()
	n.Exits = append(n.Exits, n.Exits[0])
	n.Exits[2].Name, n.BorderRouters[0].Peers[0].Exit = "c", "c"
	moved := h.of(n)
	moved.says("up", "exit-1 is of an earlier rendering: stop FRR, run kernel.sh down, and begin anew")
}

// An interface that is not there, or is somebody's, is left out. One that has gone keeps nothing else from being taken back.
func TestKernelScriptWithoutInterface(t *testing.T) {
	h := labHost(t).of(labNetwork())
	a := filepath.Join(h.dir, "class/a")
	if err := os.RemoveAll(a); err != nil {
		t.Fatal(err)
	}
	h.says("up", "no exit-1: there is no interface a; once there is, run this again")
	h.write("class/a/mtu", "1700")
	h.write("class/a/master", "br0")
	h.says("up", "no exit-1: a is part of br0; take it out there, or run the kernel.sh down of whoever put it in")
	if err := os.Remove(a + "/master"); err != nil {
		t.Fatal(err)
	}
	h.run("up")
	if err := errors.Join(os.RemoveAll(a), os.RemoveAll(filepath.Join(h.dir, "sys/net/ipv6/conf/a"))); err != nil {
		t.Fatal(err)
	}
	if told := h.run("down"); !slices.Contains(told, "ip link del dev exit-1") || told[len(told)-1] != "sysctl net/ipv6/conf/all/seg6_enabled=0" {
		t.Errorf("without the interface down does only\n%s", strings.Join(told, "\n"))
	}
}

// Rules of another rendering change with it, whatever has their priorities.
func TestKernelScriptChangesRules(t *testing.T) {
	n := labNetwork()
	h := labHost(t).of(n)
	h.run("up")
	n.Exits = append(n.Exits, egress.Exit{Name: "c", Locators: prefixes("2001:db8:f0::/48")})
	told := h.of(n).run("up")
	for _, want := range []string{"ip -6 rule add iif exit-1 to 2001:db8:f0::/48 blackhole priority 100", "ip -6 rule del iif exit-1 to 2001:db8:f1::/48 blackhole priority 100", "ip -6 rule add iif exit-1 to 2001:db8:f2::/48 blackhole priority 102"} {
		if !slices.Contains(told, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(told, "\n"))
		}
	}
	h.run("down")
	if left, err := os.ReadFile(filepath.Join(h.dir, "sys/rules")); err != nil || len(left) > 0 {
		t.Errorf("rules are left: %s, %v", left, err)
	}
}

// What could not be taken back is taken back later.
func TestKernelScriptDownAgain(t *testing.T) {
	h := labHost(t).of(labNetwork())
	h.run("up")
	broken := h
	broken.script = strings.Replace(h.script, `rm -r "$class/$4"`, "return 1", 1)
	broken.says("down", "not all is taken back; what is left is in "+h.dir+"/run/plait-render/as1/undo: run this again, or do it by hand and remove that directory")
	h.same("down again", h.run("down"), []string{"ip link del dev exit-1"})
	if _, err := os.Stat(filepath.Join(h.dir, "run/plait-render/as1")); err == nil {
		t.Error("the directory is left")
	}
}

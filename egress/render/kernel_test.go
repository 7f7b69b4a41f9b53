package render

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// standIns for the commands of kernel.sh: they keep sysctls in files and interfaces in a list, and write down what they were told.
const standIns = `
sysctl() {
	case $1 in
	-n) cat "$sys/$2" ;;
	-qw) echo "sysctl $2" >>"$log"; echo "${2#*=}" >"$sys/${2%%=*}" ;;
	esac
}
ip() {
	case $* in
	"link show dev"*) [ -e "$sys/class/$4" ]; return ;;
	"-o link show dev"*) echo "7: $5: <UP> mtu $(cat "$sys/class/$5/mtu") qdisc noop"; return ;;
	"-6 rule show priority"*) [ ! -e "$sys/rule" ] || echo "$5: from all iif csp lookup $7"; return ;;
	"-6 rule add"*) : >"$sys/rule" ;;
	"-6 rule del"*) rm "$sys/rule" ;;
	"link add dev"*) mkdir "$sys/class/$4" ;;
	"link del dev"*) rmdir "$sys/class/$4" ;;
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

func newHost(t *testing.T, kernel string, sysctls map[string]string) host {
	t.Helper()
	h := host{t, t.TempDir(), ""}
	for key, value := range sysctls {
		path := filepath.Join(h.dir, "sys", key)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h.script = strings.NewReplacer("set -eu\n", "set -eu\nsys="+h.dir+"/sys log="+h.dir+"/log\n"+standIns, "/run/", h.dir+"/run/").Replace(kernel)
	return h
}

// run runs the script and returns what it told the commands.
func (h host) run(argument string) []string {
	h.Helper()
	log := filepath.Join(h.dir, "log")
	if err := os.WriteFile(log, nil, 0o644); err != nil {
		h.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", h.script, "kernel.sh", argument).CombinedOutput()
	if err != nil || len(out) > 0 {
		h.Fatalf("kernel.sh %s: %v: %s", argument, err, out)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		h.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func (h host) same(what string, got, want []string) {
	h.Helper()
	if !slices.Equal(got, want) {
		h.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The script of a border router changes what is not yet as it should be, and takes back what it changed and nothing else.
func TestKernelScript(t *testing.T) {
	h := newHost(t, labNetwork().border(labNetwork().BorderRouters[0]).Kernel, map[string]string{
		"net/ipv6/conf/all/forwarding": "1", "net/ipv6/conf/all/seg6_enabled": "0", "net/ipv6/conf/csp/seg6_enabled": "0", "net/vrf/strict_mode": "0",
		"net/ipv6/conf/a/keep_addr_on_down": "0", "class/csp/mtu": "1700"})
	routes := []string{"ip -6 route replace 2001:db8:f1::/48 dev exit-1 table 101", "ip -6 route replace 2001:db8:1::/64 dev csp table 101"}
	rule := []string{"ip -6 rule add iif csp table 101 priority 32800"}
	up := slices.Concat([]string{"sysctl net/ipv6/conf/all/seg6_enabled=1", "sysctl net/ipv6/conf/csp/seg6_enabled=1", "sysctl net/vrf/strict_mode=1",
		"ip link add dev exit-1 type vrf table 101", "ip link set dev exit-1 up", "sysctl net/ipv6/conf/a/keep_addr_on_down=1", "ip link set dev a master exit-1"}, routes, rule)
	h.same("up", h.run("up"), up)
	h.same("up again", h.run("up"), append([]string{"ip link set dev a master exit-1"}, routes...))
	if err := os.Remove(filepath.Join(h.dir, "sys/class/exit-1")); err != nil {
		t.Fatal(err)
	}
	h.same("up after somebody took the VRF", h.run("up"), slices.Concat([]string{"ip link add dev exit-1 type vrf table 101", "ip link set dev exit-1 up", "ip link set dev a master exit-1"}, routes))
	h.same("down", h.run("down"), []string{"ip -6 route del 2001:db8:1::/64 dev csp table 101", strings.Replace(rule[0], "add", "del", 1), "ip link set dev a nomaster", "ip link del dev exit-1",
		"sysctl net/ipv6/conf/a/keep_addr_on_down=0", "sysctl net/vrf/strict_mode=0", "sysctl net/ipv6/conf/csp/seg6_enabled=0", "sysctl net/ipv6/conf/all/seg6_enabled=0"})
	h.same("down again", h.run("down"), []string{""})
	h.same("up once more", h.run("up"), up)
}

package render

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// labLines are those of a file in the plan of the lab's EPE topology, which runs on FRR 10.3 there, with names as here.
func labLines(t *testing.T, file string) []string {
	t.Helper()
	plan, err := os.ReadFile("../../lab/topo/testdata/epe.golden")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(plan), "== file "+file+" ")
	text, _, end := strings.Cut(rest, "== file ")
	if !found || !end {
		t.Fatalf("the plan has no file %s", file)
	}
	_, text, _ = strings.Cut(text, "\n")
	return lines(strings.NewReplacer("exit-a", "exit-1", "locator MAIN", "locator plait", "vpn export learned", "vpn export plait-learned-6", "route-map learned", "route-map plait-learned-6",
		"prefix-list own", "prefix-list plait-own-exit-1-6", " permit 2001", " seq 5 permit 2001", "to-ta", "plait-to-exit-1-6", "from-ta", "plait-from-exit-1-6", "description ta", "description a").Replace(text))
}

// lines without indentation, comments and ends of blocks.
func lines(text string) (out []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '!' && !strings.HasPrefix(line, "exit") {
			out = append(out, line)
		}
	}
	return out
}

func without(a, b []string) []string {
	out := slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
	slices.Sort(out)
	return slices.Compact(out)
}

// What the lab configures a border router with, and what is rendered for the same one, differ in this and nothing else: whoever finds one more trap finds it for both.
func TestBesideTheLab(t *testing.T) {
	lab, here := labLines(t, "/etc/frr/as1/frr.conf"), lines(labNetwork().Routers()[0].FRR)
	onlyLab := []string{
		"bgp bestpath compare-routerid", "bgp fast-convergence", // the lab fails fast, and repeats exactly
		"neighbor 2001:db8:1::2 advertisement-interval 0", "neighbor 2001:db8:1::2 timers 3 9", "neighbor 2001:db8:1::2 timers connect 1",
		"neighbor 2001:db8:2::2 advertisement-interval 0", "neighbor 2001:db8:2::2 timers 3 9", "neighbor 2001:db8:2::2 timers connect 1",
		"no bgp ebgp-requires-policy", // here there are policies
		"rd vpn export 65000:11",      // one for each router and exit
		"route-map plait-from-exit-1-6 permit 10", "route-map plait-to-exit-1-6 permit 20",
	}
	onlyHere := []string{
		"ipv6 prefix-list plait-inside-6 seq 10 permit 2001:db8:f1::/48 le 128", "ipv6 prefix-list plait-inside-6 seq 15 permit 2001:db8:f2::/48 le 128", // the lab's peers are honest
		"ipv6 prefix-list plait-inside-6 seq 5 permit 2001:db8:1::/64 le 128", "match ipv6 address prefix-list plait-inside-6",
		"neighbor 2001:db8:1::2 update-source 2001:db8:1::3", "rd vpn export 10.255.0.3:1",
		"route-map plait-from-exit-1-6 deny 10", "route-map plait-from-exit-1-6 permit 20", "route-map plait-to-exit-1-6 permit 10",
		"set extcommunity none",
	}
	if got := without(lab, here); !slices.Equal(got, onlyLab) {
		t.Errorf("only in the lab:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(onlyLab, "\n"))
	}
	if got := without(here, lab); !slices.Equal(got, onlyHere) {
		t.Errorf("only here:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(onlyHere, "\n"))
	}
}

// The same routes leak into the VRF.
func TestLeaksOfTheLab(t *testing.T) {
	plan, err := os.ReadFile("../../lab/topo/testdata/epe.golden")
	if err != nil {
		t.Fatal(err)
	}
	n := labNetwork()
	for _, b := range n.BorderRouters {
		table := fmt.Sprint(n.Exits[n.exit(b.Peers[0].Exit)].Table)
		for lab, here := range map[string]string{
			"route replace " + b.Locator.String() + " dev exit-":                         "route replace " + b.Locator.String() + " dev exit-",
			"route replace " + n.Announce[0].String() + " dev csp table " + table + "\n": "route 6 " + table + " " + n.Announce[0].String() + "\n",
		} {
			if !strings.Contains(string(plan), lab) || !strings.Contains(n.border(b).Kernel, here) {
				t.Errorf("router %s: the lab has no %q, or kernel.sh no %q", b.Name, lab, here)
			}
		}
	}
}

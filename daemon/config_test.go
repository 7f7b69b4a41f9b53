package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inDirectory writes a configuration file and goes to its directory, so that problems name it plait.yaml.
func inDirectory(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("plait.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withCgroup is a configuration as ReadConfig completes it on this machine.
func withCgroup(c Config) Config {
	if c.Cgroup == "" {
		c.Cgroup, _ = findCgroup()
	}
	return c
}

// The file of the package and the one in the documentation are the same, and say what holds without a file.
func TestDefaultConfig(t *testing.T) {
	packaged, err := os.ReadFile("../packaging/plait.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig("../packaging/plait.yaml")
	want := withCgroup(DefaultConfig())
	want.fromFile = true
	if err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("packaging/plait.yaml: got %+v, %v, want the defaults %+v", c, err, want)
	}
	page, err := os.ReadFile("../docs/congestion/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```yaml\n"+string(packaged)+"```\n") {
		t.Error("docs/congestion/configuration.md: the default configuration is not that of packaging/plait.yaml; copy it there")
	}
	// Every key is on the page, as are the limits.
	for _, k := range c.keys() {
		if !strings.Contains(string(page), "| `"+k.name+"` |") {
			t.Errorf("docs/congestion/configuration.md: has no row for %s", k.name)
		}
	}
	for _, k := range choices(new(Mode), new(string), nil, new(string)) {
		if !strings.Contains(string(page), "| `"+k.name+"` |") {
			t.Errorf("docs/congestion/configuration.md: has no row for %s", k.name)
		}
	}
}

func TestNoFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if c, err := ReadConfig(""); err != nil || !reflect.DeepEqual(c, withCgroup(DefaultConfig())) {
		t.Errorf("no path: got %+v, %v, want the defaults", c, err)
	}
	want := "read configuration missing.yaml: there is no such file; name another with --config, or leave --config out to run with the defaults"
	if _, err := ReadConfig("missing.yaml"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What can be read only once is refused before anybody waits for it: the process in the background reads again, and so does a reload.
func TestNoRegularFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig("."); err == nil || err.Error() != "read configuration .: it is a directory; name a file in it" {
		t.Errorf("of a directory: %v", err)
	}
	for _, path := range []string{"pipe", "/dev/null"} {
		want := "read configuration " + path + ": it is no regular file, and is to be read more than once; write it to a file and name that"
		if _, err := ReadConfig(path); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestReadConfig(t *testing.T) {
	mount, err := findCgroup()
	named := ""
	if err == nil {
		named = "cgroup: " + mount
	}
	inDirectory(t, named+`
control: /run/other
metrics: off
congestion:
  mode: observe
  policy: fixed:hybla
  holdout_percent: 12.5
  allow: aggressive
  rules:
    - port: 22
      mode: off
    - ports: [80, 443, 8080, 8443, 8888]
      prefixes: [192.0.2.0/24, "2001:db8::/32"]
      policy: rtcp
      holdout_percent: 0
      allow: friendly
`)
	zero := 0.0
	rules := []Rule{
		{Selection: Selection{Selector: "port 22", Ports: []uint16{22}}, Mode: Off},
		{Selection: Selection{Selector: "port 80 443 8080 and 2 more, prefix 192.0.2.0/24 2001:db8::/32", Ports: []uint16{80, 443, 8080, 8443, 8888},
			Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}},
			Policy: "rtcp", HoldoutPercent: &zero, Allow: Friendly},
	}
	want := Config{Cgroup: mount, Control: "/run/other", Metrics: "off",
		Congestion: Lever{Mode: Observe, Policy: "fixed:hybla", HoldoutPercent: 12.5, Allow: Aggressive, Rules: rules}, Ackpath: defaultAckpath(), fromFile: true}
	c, err := ReadConfig("plait.yaml")
	if err != nil || !reflect.DeepEqual(c, want) {
		t.Fatalf("got  %+v, %v\nwant %+v", c, err, want)
	}
	levers := []Lever{
		{Mode: Observe, Policy: "fixed:hybla", HoldoutPercent: 12.5, Allow: Aggressive},
		{Mode: Off, Policy: "fixed:hybla", HoldoutPercent: 12.5, Allow: Aggressive},
		{Mode: Observe, Policy: "rtcp", HoldoutPercent: 0, Allow: Friendly},
	}
	if got := c.levers(); !reflect.DeepEqual(got, levers) {
		t.Errorf("levers: got  %+v\nwant %+v", got, levers)
	}
}

// A file without anything is one that somebody is writing; the defaults would act on the whole host.
func TestEmptyFile(t *testing.T) {
	want := "plait.yaml:1:1: the file is empty: expected keys, or {} to run with the defaults"
	for _, text := range []string{"", "# nothing\n", "---\n", "null\n"} {
		inDirectory(t, text)
		if _, err := ReadConfig("plait.yaml"); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"congestion:\n", "{}\n"} {
		inDirectory(t, text)
		want := withCgroup(DefaultConfig())
		want.fromFile = true
		if c, err := ReadConfig("plait.yaml"); err != nil || !reflect.DeepEqual(c, want) {
			t.Errorf("%q: got %+v, %v, want the defaults", text, c, err)
		}
	}
}

// All problems of a file at once.
func TestProblems(t *testing.T) {
	inDirectory(t, `cgroup: web.slice
contrl: /run/x
metrics: 0.0.0.0:9464
metrics: off
congestion:
  mode: true
  policy: rtpc
  holdout_percent: 101
  allow: [friendly]
  colour: blue
  rules:
    - mode: off
    - port: 0
    - ports: [443, 443]
      prefix: 192.0.2.1/24
    - prefix: ::ffff:192.0.2.0/120
    - prefixes: [192.0.2.0/24]
    - prefix: 192.0.2.0/24
    - 22
    - cgroup: /dev/null
    - cgroups: [/no/such, {}, "", ../../no/such]
`)
	policies := "fixed:bbr, fixed:bic, fixed:burst, fixed:cubic, fixed:highspeed, fixed:htcp, fixed:hybla, fixed:reno, fixed:scalable, fixed:vegas, fixed:westwood, "
	want := []string{
		"1:9: cgroup: web.slice: expected the absolute path of a cgroup v2 directory, like /sys/fs/cgroup",
		"2:1: contrl: unknown key: expected control? (cgroup, control, metrics, congestion, egress or ackpath)",
		"3:10: metrics: 0.0.0.0:9464: expected a loopback address with a port, like 127.0.0.1:9464, or off: anybody who can reach it may read it",
		"4:1: metrics: second time in this mapping: expected once, it is in line 3",
		"6:9: mode: true: expected off, observe or on",
		"7:11: policy: rtpc: expected rtcp? (" + policies,
		"8:20: holdout_percent: 101: expected a number from 0 to 100, in percent of the connections",
		"9:10: allow: a list: expected friendly or aggressive",
		"10:3: colour: unknown key: expected mode, policy, holdout_percent, allow or rules",
		"12:7: rules: no port, prefix or cgroup: expected one at least; what is for all connections stands above the rules",
		"13:13: port: 0: expected a number from 1 to 65535",
		"14:20: port: 443: expected each port once, it is in line 14",
		"15:15: prefix: 192.0.2.1/24: expected no bits behind the length, like 192.0.2.0/24",
		"16:15: prefix: ::ffff:192.0.2.0/120: expected IPv4 in its own notation, like 192.0.2.0/24",
		"18:15: prefix: 192.0.2.0/24: expected each prefix once, it is in line 17",
		"19:7: rules: 22: expected a mapping with the keys port, ports, prefix, prefixes, cgroup, cgroups, mode, policy, holdout_percent, allow",
		"20:15: cgroup: /dev/null: not a directory of cgroup v2: expected a directory of cgroup v2, like system.slice",
		"21:17: cgroup: /no/such: no such file or directory: expected a directory of cgroup v2, like system.slice",
		"21:27: cgroup: a mapping: expected a directory of cgroup v2, like system.slice",
		"21:31: cgroup: : expected a directory of cgroup v2, like system.slice",
		"21:35: cgroup: ../../no/such: no such file or directory: expected a directory of cgroup v2, like system.slice",
	}
	_, err := ReadConfig("plait.yaml")
	if err == nil {
		t.Fatal("no problem was found")
	}
	got := strings.Split(err.Error(), "\n")
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = "plait.yaml:" + want[i]
		}
		if g != w && !(strings.HasSuffix(w, policies) && strings.HasPrefix(g, w)) {
			t.Errorf("problem %d:\ngot  %s\nwant %s", i, g, w)
		}
	}
}

func TestNotYAML(t *testing.T) {
	for text, want := range map[string]string{
		"control: /run/x\n\tmetrics: off\n": "plait.yaml:2:1: found a tab character that violates indentation: expected YAML",
		"]\n":                               "plait.yaml:1:1: did not find expected node content: expected YAML",
		"control: /run/x\nrules: [1\n":      "plait.yaml:2:1: did not find expected ',' or ']': expected YAML",
		"cgroup: /no/such\n":                "plait.yaml:1:9: cgroup: /no/such: no such file or directory: expected the absolute path of a cgroup v2 directory, like /sys/fs/cgroup",
		"- a\n":                             "plait.yaml:1:1: the file: a list: expected a mapping with the keys cgroup, control, metrics, congestion, egress, ackpath",
		"{}\n---\n{}\n":                     "plait.yaml:2:1: second document: expected one",
		"{}\n---\n{{{\n":                    "plait.yaml:4:1: did not find expected node content: expected YAML",
		"{}\n...\ngarbage: {\n":             "plait.yaml:3:1: did not find expected <document start>: expected YAML",
		"congestion:\n\tmode: off\n":        "plait.yaml:2:1: found a tab character that violates indentation: expected YAML",
		"{}\n# \xe9t\xe9\n":                 "plait.yaml:2:3: invalid trailing UTF-8 octet: expected YAML",
		"# \u00e9\n\n# \x00\n":              "plait.yaml:3:3: control characters are not allowed: expected YAML",
		"control: /proc\n":                  "plait.yaml:1:10: control: /proc: expected the path of a socket, and that is a directory",
		"control: /run/none/\n":             "plait.yaml:1:10: control: /run/none/: expected the path of a socket, and that is a directory",
		"metrics: &a off\ncontrol: *a\n":    "plait.yaml:2:10: control: off: expected an absolute path",
		"control: /run/x\nmetrics: *off\n":  "plait.yaml:2:10: unknown anchor 'off' referenced: expected YAML",

		"congestion:\n  rules:\n    - port: 22\n      mode: off\n   allow: friendly\n  mode: on\n": "plait.yaml:5:1: did not find expected key: expected YAML",
	} {
		inDirectory(t, text)
		if _, err := ReadConfig("plait.yaml"); err == nil || err.Error() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// A file that is no configuration, such as a disk's image, is not read into memory.
func TestTooLarge(t *testing.T) {
	inDirectory(t, "{}\n")
	if err := os.Truncate("plait.yaml", maxConfigBytes+1); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("read configuration plait.yaml: it has %d bytes: expected %d at most", maxConfigBytes+1, maxConfigBytes)
	if _, err := ReadConfig("plait.yaml"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Aliases of one long list, or a file that is something else, do not fill the memory of a daemon that is up with their mistakes.
func TestTooManyProblems(t *testing.T) {
	const times = 500
	inDirectory(t, "congestion:\n  rules:\n    - port: &all ["+strings.Repeat("x, ", times)+"]\n"+strings.Repeat("    - port: *all\n", times))
	_, err := ReadConfig("plait.yaml")
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if want := "plait.yaml: there are more mistakes: these are the first 100"; len(lines) != 101 || lines[100] != want {
		t.Errorf("%d lines, the last: %s; want 101 and %s", len(lines), lines[len(lines)-1], want)
	}
}

func TestTooManyRules(t *testing.T) {
	var text strings.Builder
	text.WriteString("congestion:\n  rules:\n")
	for port := 1; port <= maxRules; port++ {
		fmt.Fprintf(&text, "    - port: %d\n", port)
	}
	inDirectory(t, text.String())
	if c, err := ReadConfig("plait.yaml"); err != nil || len(c.levers()) != 64 {
		t.Errorf("63 rules: %v, %d levers, want no error and 64", err, len(c.levers()))
	}
	inDirectory(t, text.String()+"    - port: 65\n")
	want := "plait.yaml:66:7: rules: 64: expected at most 63"
	if _, err := ReadConfig("plait.yaml"); err == nil || err.Error() != want {
		t.Errorf("64 rules: got %v, want %s", err, want)
	}
}

// More prefixes than the kernel half has room for are told with their place, before it is asked; one place is for IPv4, which is no part of ::/0.
func TestTooManyPrefixes(t *testing.T) {
	var text strings.Builder
	text.WriteString("congestion:\n  rules:\n    - prefix: ::/0\n    - prefixes:\n")
	for i := range maxPrefixes - 1 {
		fmt.Fprintf(&text, "        - 10.%d.%d.0/24\n", i>>8, i&255)
	}
	inDirectory(t, text.String())
	if c, err := ReadConfig("plait.yaml"); err != nil || len(c.Congestion.Rules) != 2 {
		t.Errorf("%d prefixes: %v, %d rules, want no error and 2", maxPrefixes, err, len(c.Congestion.Rules))
	}
	inDirectory(t, text.String()+"        - 192.0.2.0/24\n")
	want := "plait.yaml:3:5: rules: 65536 prefixes: expected at most 65535"
	if _, err := ReadConfig("plait.yaml"); err == nil || err.Error() != want {
		t.Errorf("one more: got %v, want %s", err, want)
	}
}

// What the command line says outlasts a reload: plait up --observe must never begin to act because a file changed.
func TestOverrides(t *testing.T) {
	inDirectory(t, "control: /run/x\n")
	c, err := ReadConfig("plait.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if c, err = c.Override(Overrides{Observe: true, Policy: "fixed:reno"}); err != nil {
		t.Fatal(err)
	}
	changed := "control: /run/x\ncongestion: {policy: rtcp, holdout_percent: 50, rules: [{port: 80, mode: on, policy: rtcp}, {port: 22, mode: off}]}\n"
	if err := os.WriteFile("plait.yaml", []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err = c.Reread("plait.yaml"); err != nil {
		t.Fatal(err)
	}
	want := []Lever{
		{Mode: Observe, Policy: "fixed:reno", HoldoutPercent: 50, Allow: Friendly},
		{Mode: Observe, Policy: "rtcp", HoldoutPercent: 50, Allow: Friendly},
		{Mode: Off, Policy: "fixed:reno", HoldoutPercent: 50, Allow: Friendly},
	}
	if got := c.levers(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if _, err := c.Override(Overrides{Policy: "plate"}); err == nil || !strings.HasPrefix(err.Error(), "--policy plate: expected plait? (") {
		t.Errorf("got %v, want what was expected instead of plate", err)
	}
}

func TestRereadRefuses(t *testing.T) {
	inDirectory(t, "control: /run/x\n")
	c, err := ReadConfig("plait.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"control: /run/y\n":                     "plait.yaml: control, metrics and cgroup take effect when plait starts: run plait down and plait up",
		"control: /run/x\nackpath: {port: 4}\n": "plait.yaml: port of ackpath takes effect when plait starts: run plait down and plait up",
		"control: /run/x\nmode: dunno\n":        "plait.yaml:2:1: mode: unknown key: expected cgroup, control, metrics, congestion, egress or ackpath",
	} {
		if err := os.WriteFile("plait.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := c.Reread("plait.yaml")
		if err == nil || err.Error() != want || !reflect.DeepEqual(got, c) {
			t.Errorf("got %+v, %v\nwant the old configuration and %s", got, err, want)
		}
	}
}

// A file that is no configuration at all is not repeated as a whole, nor over several lines.
func TestReadConfigOfProse(t *testing.T) {
	inDirectory(t, "Dear operator,\n\n"+strings.Repeat("all is well. ", 1000))
	_, err := ReadConfig("plait.yaml")
	if want := `plait.yaml:1:1: the file: "Dear operator,\n` + strings.Repeat("all is well. ", 6) + `all is "...: expected a mapping`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %.300v, want %s", err, want)
	}
}

// Where there was a file, its absence is no configuration: the defaults would take connections that it left alone.
func TestRereadGone(t *testing.T) {
	inDirectory(t, "congestion: {mode: off}\n")
	c, err := ReadConfig("plait.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const none = "" // as when there is none at DefaultConfigPath
	if got, err := c.Reread(none); err == nil || !strings.Contains(err.Error(), "the file that is in force is gone") || !reflect.DeepEqual(got, c) {
		t.Errorf("got %+v, %v, want the old configuration and why", got, err)
	}
	without, err := ReadConfig(none)
	if err != nil {
		t.Fatal(err)
	}
	if without, err = without.Reread(none); err != nil {
		t.Errorf("no file, and never one: %v", err)
	}
	next, err := without.Reread("plait.yaml")
	if err != nil || next.Congestion.Mode != Off {
		t.Fatalf("a file where there was none: got %+v, %v, want it in force", next, err)
	}
	if _, err := next.Reread(none); err == nil {
		t.Error("a file that came by a reload, and is gone: no error")
	}
}

// The daemon reads as root without special rights; one who has just edited the file as root does not expect that.
func TestUnreadable(t *testing.T) {
	inDirectory(t, "{}\n")
	if err := os.Chmod("plait.yaml", 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		runtime.LockOSThread() // of which root's rights to files are taken
		defer runtime.UnlockOSThread()
		const nobody = 65534
		if err := unix.Setfsuid(nobody); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setfsuid(0) }()
	}
	want := "permission denied; run this as root, who must be able to read it without special rights: chown root plait.yaml, chmod u+r plait.yaml"
	if _, err := ReadConfig("plait.yaml"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("congestion: {mode: on, rules: [{port: [1, 2], prefix: ::/0}]}")
	f.Add("a: &a {b: *a}")
	f.Add("congestion:\n  rules:\n  - ports: x\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := DefaultConfig()
		if err := c.parse("plait.yaml", []byte(text)); err != nil && !strings.HasPrefix(err.Error(), "plait.yaml:") {
			t.Errorf("%q: %v has no place", text, err)
		}
		seen := map[uint16]bool{}
		for _, r := range c.Congestion.Rules {
			for _, p := range r.Ports {
				if p == 0 || seen[p] {
					t.Errorf("%q: port %d is 0 or in two rules", text, p)
				}
				seen[p] = true
			}
		}
	})
}

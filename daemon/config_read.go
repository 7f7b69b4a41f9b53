package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"plait.dev/plait/congestion"
	"plait.dev/plait/internal/badyaml"
)

// defaultPolicy is the default, and the one policy of which there is an aggressive form.
const defaultPolicy = "plait"

// key is one key of a mapping and what takes its value in.
type key struct {
	name string
	read func(*reader, *yaml.Node)
}

// reader goes through a file and gathers its problems.
type reader struct {
	file     string
	problems []error
	ports    map[uint16]int       // line of the first rule with it
	prefixes map[netip.Prefix]int // likewise
	cgroups  map[uint64]int       // likewise
}

// mostProblems are told of a file. More of them are of something that is no configuration, or of a list that many aliases stand for: they would fill the memory of a daemon
// that is up.
const mostProblems = 100

// enough is how problem ends the reading.
type enough struct{}

// problem is one line for the editor to jump to.
func (r *reader) problem(n *yaml.Node, format string, args ...any) {
	if len(r.problems) == mostProblems {
		r.problems = append(r.problems, fmt.Errorf("%s: there are more mistakes: these are the first %d", r.file, mostProblems))
		panic(enough{})
	}
	r.problems = append(r.problems, fmt.Errorf("%s:%d:%d: %s", r.file, n.Line, n.Column, fmt.Sprintf(format, args...)))
}

// mostShown are the characters a problem repeats of a value: a file that is no configuration may be one single value, of many lines.
const mostShown = 100

func shown(value string) string {
	more := ""
	if r := []rune(value); len(r) > mostShown {
		value, more = string(r[:mostShown]), "..."
	}
	if strings.ContainsFunc(value, func(r rune) bool { return !strconv.IsPrint(r) }) {
		value = strconv.Quote(value)
	}
	return value + more
}

// what is how a problem names a value.
func what(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.ShortTag() == "!!null" {
		return "nothing"
	}
	return shown(n.Value)
}

// resolve follows an alias (*name) to what it stands for, at the place of the alias: what is right there may be wrong here.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		here := *n.Alias
		here.Line, here.Column = n.Line, n.Column
		return &here
	}
	return n
}

// mapping reads the keys of a mapping. No value at all is an empty one.
func (r *reader) mapping(n *yaml.Node, at string, keys []key) {
	n = resolve(n)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	if n.Kind != yaml.MappingNode {
		r.problem(n, "%s: %s: expected a mapping with the keys %s", at, what(n), strings.Join(names, ", "))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], resolve(n.Content[i+1])
		j := slices.Index(names, k.Value)
		switch line, twice := seen[k.Value]; {
		case j < 0:
			r.problem(k, "%s: unknown key: expected %s", shown(k.Value), expect(k.Value, names))
		case twice:
			r.problem(k, "%s: second time in this mapping: expected once, it is in line %d", k.Value, line)
		default:
			keys[j].read(r, value)
		}
		seen[k.Value] = k.Line
	}
}

// list gives each element of a list, or the value itself if it is none: port: 80 is ports: [80].
func list(n *yaml.Node) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		return []*yaml.Node{n}
	}
	out := make([]*yaml.Node, len(n.Content))
	for i, e := range n.Content {
		out[i] = resolve(e)
	}
	return out
}

// oneOf reads one of a few words. YAML's old true and false are told as what was written: on and off stay words.
func oneOf[T ~string](name string, into *T, words ...string) key {
	return key{name, func(r *reader, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || !slices.Contains(words, n.Value) {
			r.problem(n, "%s: %s: expected %s", name, what(n), expect(what(n), words))
			return
		}
		*into = T(n.Value)
	}}
}

// text reads a value that check has nothing against; check says what was expected, or nothing.
func text(name string, into *string, check func(string) string) key {
	return key{name, func(r *reader, n *yaml.Node) {
		why := "expected a word"
		if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
			why = check(n.Value)
		}
		if why != "" {
			r.problem(n, "%s: %s: %s", name, what(n), why)
			return
		}
		*into = n.Value
	}}
}

// quantity reads a number from 0 to most.
func quantity(name string, most float64, unit string, set func(float64)) key {
	return key{name, func(r *reader, n *yaml.Node) {
		x, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || err != nil || !(x >= 0 && x <= most) {
			r.problem(n, "%s: %s: expected a number from 0 to %.0f, in %s", name, what(n), most, unit)
			return
		}
		set(x)
	}}
}

// percent reads the share of connections held out.
func percent(set func(float64)) key {
	return quantity("holdout_percent", 100, "percent of the connections", set)
}

// wrongPolicy says what was expected instead of a policy, or nothing.
func wrongPolicy(name string) string {
	names := congestion.Names()
	if slices.Contains(names, name) {
		return ""
	}
	return "expected " + expect(name, names)
}

func wrongPath(path string) string {
	switch {
	case !filepath.IsAbs(path):
		return "expected an absolute path"
	case len(path) > maxControlBytes:
		return fmt.Sprintf("expected a path of at most %d bytes", maxControlBytes)
	}
	if info, err := os.Stat(path); strings.HasSuffix(path, "/") || err == nil && info.IsDir() {
		return "expected the path of a socket, and that is a directory"
	}
	return ""
}

func wrongMetrics(address string) string {
	if a, err := netip.ParseAddrPort(address); address == metricsOff || err == nil && a.Addr().IsLoopback() && a.Port() > 0 {
		return ""
	}
	return "expected a loopback address with a port, like " + defaultMetrics + ", or " + metricsOff + ": anybody who can reach it may read it"
}

func wrongCgroup(path string) string {
	const expected = "expected the absolute path of a cgroup v2 directory, like /sys/fs/cgroup"
	if !filepath.IsAbs(path) {
		return expected
	}
	if _, err := cgroupID(path); err != nil {
		return fmt.Sprintf("%v: %s", err, expected)
	}
	return ""
}

// port reads the local ports of a rule.
func (r *reader) port(n *yaml.Node, into *[]uint16) {
	for _, e := range list(n) {
		p, err := strconv.ParseUint(e.Value, 10, 16)
		if e.Kind != yaml.ScalarNode || err != nil || p == 0 {
			r.problem(e, "port: %s: expected a number from 1 to 65535", what(e))
			continue
		}
		if line, twice := r.ports[uint16(p)]; twice {
			r.problem(e, "port: %d: expected each port once, it is in line %d", p, line)
			continue
		}
		r.ports[uint16(p)] = e.Line
		*into = append(*into, uint16(p))
	}
}

// prefix reads the destinations of a rule.
func (r *reader) prefix(n *yaml.Node, into *[]netip.Prefix) {
	for _, e := range list(n) {
		p, err := netip.ParsePrefix(e.Value)
		switch line, twice := r.prefixes[p]; {
		case e.Kind != yaml.ScalarNode || err != nil:
			r.problem(e, "prefix: %s: expected an IP prefix, like 192.0.2.0/24 or 2001:db8::/32", what(e))
		case p != p.Masked():
			r.problem(e, "prefix: %s: expected no bits behind the length, like %s", p, p.Masked())
		case p.Addr().Is4In6():
			r.problem(e, "prefix: %s: expected IPv4 in its own notation, like 192.0.2.0/24", p)
		case twice:
			r.problem(e, "prefix: %s: expected each prefix once, it is in line %d", p, line)
		default:
			r.prefixes[p] = e.Line
			*into = append(*into, p)
		}
	}
}

// cgroup reads the cgroups of a rule: absolute paths, or below the mount of cgroup v2.
func (r *reader) cgroup(n *yaml.Node, into *[]uint64) {
	for _, e := range list(n) {
		path := e.Value
		if mount, err := findCgroup(); err == nil && !filepath.IsAbs(path) {
			path = filepath.Join(mount, path)
		}
		id, err := cgroupID(path)
		switch line, twice := r.cgroups[id]; {
		case e.Kind != yaml.ScalarNode || e.Value == "":
			r.problem(e, "cgroup: %s: expected a directory of cgroup v2, like system.slice", what(e))
		case err != nil:
			r.problem(e, "cgroup: %s: %v: expected a directory of cgroup v2, like system.slice", shown(e.Value), err)
		case twice:
			r.problem(e, "cgroup: %s: expected each cgroup once, it is in line %d", shown(e.Value), line)
		default:
			r.cgroups[id] = e.Line
			*into = append(*into, id)
		}
	}
}

// maxSelected is how many ports, prefixes or cgroups of a rule are shown.
const maxSelected = 3

// selects adds to what a rule is shown as.
func (r *Selection) selects(kind string, n *yaml.Node) {
	words := []string{kind}
	for i, e := range list(n) {
		if i == maxSelected {
			words = append(words, fmt.Sprintf("and %d more", len(n.Content)-i))
			break
		}
		words = append(words, e.Value)
	}
	if r.Selector != "" {
		r.Selector += ", "
	}
	r.Selector += strings.Join(words, " ")
}

// rule reads one exception: which connections it is for, and by its other keys, what.
func (r *reader) rule(n *yaml.Node, s *Selection, others ...key) {
	before := len(r.problems)
	ports := func(r *reader, n *yaml.Node) { r.port(n, &s.Ports); s.selects("port", n) }
	prefixes := func(r *reader, n *yaml.Node) { r.prefix(n, &s.Prefixes); s.selects("prefix", n) }
	cgroups := func(r *reader, n *yaml.Node) { r.cgroup(n, &s.Cgroups); s.selects("cgroup", n) }
	r.mapping(n, "rules", append([]key{{"port", ports}, {"ports", ports}, {"prefix", prefixes}, {"prefixes", prefixes}, {"cgroup", cgroups}, {"cgroups", cgroups}}, others...))
	if len(s.Ports)+len(s.Prefixes)+len(s.Cgroups) == 0 && len(r.problems) == before {
		r.problem(n, "rules: no port, prefix or cgroup: expected one at least; what is for all connections stands above the rules")
	}
}

// rules reads the exceptions of a lever. A port, prefix or cgroup is in one of them at most.
func (r *reader) rules(n *yaml.Node, one func(*yaml.Node)) {
	r.ports, r.prefixes, r.cgroups = map[uint16]int{}, map[netip.Prefix]int{}, map[uint64]int{}
	if n.Kind != yaml.SequenceNode {
		r.problem(n, "rules: %s: expected a list", what(n))
		return
	}
	if len(n.Content) > maxRules {
		r.problem(n.Content[maxRules], "rules: %d: expected at most %d", len(n.Content), maxRules)
	}
	for _, e := range list(n) {
		one(e)
	}
}

// choices are the keys that the lever and its rules have in common.
func choices(mode *Mode, policy *string, holdout func(float64), allow *string) []key {
	return []key{
		oneOf("mode", mode, string(Off), string(Observe), string(On)),
		text("policy", policy, wrongPolicy),
		percent(holdout),
		oneOf("allow", allow, Friendly, Aggressive),
	}
}

// keys of the whole file.
func (c *Config) keys() []key {
	l := &c.Congestion
	return []key{
		text("cgroup", &c.Cgroup, wrongCgroup),
		text("control", &c.Control, wrongPath),
		text("metrics", &c.Metrics, wrongMetrics),
		{"congestion", func(r *reader, n *yaml.Node) {
			r.mapping(n, "congestion", append(choices(&l.Mode, &l.Policy, func(x float64) { l.HoldoutPercent = x }, &l.Allow),
				key{"rules", func(r *reader, n *yaml.Node) {
					r.rules(n, func(e *yaml.Node) {
						var x Rule
						r.rule(e, &x.Selection, choices(&x.Mode, &x.Policy, func(p float64) { x.HoldoutPercent = &p }, &x.Allow)...)
						l.Rules = append(l.Rules, x)
					})
					if len(r.prefixes) > maxPrefixes {
						r.problem(n, "rules: %d prefixes: expected at most %d", len(r.prefixes), maxPrefixes)
					}
				}}))
		}},
		{"egress", c.Egress.read},
		{"ackpath", c.Ackpath.read},
	}
}

// parse reads the text of a file.
func (c *Config) parse(file string, text []byte) error {
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) || err == nil && what(document.Content[0]) == "nothing" { // what an editor has not finished to write must not put the defaults in force
		return fmt.Errorf("%s:1:1: the file is empty: expected keys, or {} to run with the defaults", file)
	}
	if err != nil {
		return notYAML(file, text, err)
	}
	r := &reader{file: file}
	switch err := decoder.Decode(&second); {
	case err == nil:
		r.problem(&second, "second document: expected one")
	case !errors.Is(err, io.EOF): // what stands there would be left out without a word
		return notYAML(file, text, err)
	}
	c.readAll(r, document.Content[0])
	return errors.Join(r.problems...)
}

// notYAML says where the parser stopped, and why.
func notYAML(file string, text []byte, err error) error {
	line, column, cause := badyaml.Where(text, err)
	return fmt.Errorf("%s:%d:%d: %s: expected YAML", file, line, max(column, 1), cause)
}

// readAll reads until there are enough problems.
func (c *Config) readAll(r *reader, n *yaml.Node) {
	defer func() {
		if why := recover(); why != nil && why != (enough{}) {
			panic(why)
		}
	}()
	r.mapping(n, "the file", c.keys())
}

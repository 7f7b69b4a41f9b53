package experiment

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// appKeys are the keys of an application that depend on its type.
type appKeys struct {
	Type     string
	Required []string
	Optional []string
}

// keysByType are the keys of the applications of each type, beyond type, when, from, to, from_link, to_link, family, start_s, jitter_ms,
// stop_s and timeout_s, which all have.
var keysByType = []appKeys{
	{"download", nil, []string{"protocol", "congestion", "min_subflows", "bytes", "connections", "server", "client"}},
	{"stream", []string{"rate_mbps"}, []string{"protocol", "congestion", "min_subflows"}},
	{"bursts", []string{"bytes", "gap_ms", "count"}, []string{"protocol", "congestion", "min_subflows", "more_bytes", "warmup", "open_loop"}},
	{"ping", []string{"gap_ms", "count"}, nil},
	{"command", []string{"client_command"}, []string{"protocol", "min_subflows", "server_command", "results"}},
	{"arms", []string{"bytes", "split", "protocol"}, []string{"ratio"}},
}

var commonAppKeys = []string{
	"type", "from", "to", "from_link", "to_link", "family", "start_s", "jitter_ms", "stop_s", "timeout_s",
}

func (c *checker) checkApps() {
	endless := c.spec.DurationS == 0
	if len(c.spec.Apps) == 0 && endless {
		c.add("apps", "there is neither an application nor duration_s: the cell would not end")
	}
	for _, name := range sortedKeys(c.spec.Apps) {
		app, path := c.spec.Apps[name], join("apps", name)
		c.checkAppKeys(app, path)
		c.checkAppEnds(app, path)
		c.checkAppTimes(app, path)
		if app.MinSubflows > 0 && app.Protocol != "mptcp" {
			c.add(join(path, "min_subflows"), "only connections with protocol: mptcp have subflows")
		}
		if app.Protocol == "sctp" && (app.Server == "nginx" || app.Client == "curl") {
			c.add(join(path, "protocol"), "nginx and curl do not speak SCTP; use server: go and client: go")
		}
		if app.Type == "arms" && app.Protocol != "sctp" {
			c.add(join(path, "protocol"), "arms speaks SCTP only; write protocol: sctp")
		}
		if app.Type == "arms" && (app.Split == "static") != (len(app.Ratio) > 0) {
			c.add(join(path, "split"), "split static, and no other, needs a ratio, such as [4, 1]")
		}
		if slices.ContainsFunc(app.Ratio, func(x float64) bool { return !(x > 0) }) {
			c.add(join(path, "ratio"), "%v: use numbers above 0", app.Ratio)
		}
		if app.Protocol == "sctp" && app.Congestion != "" {
			c.add(join(path, "congestion"), "SCTP has its own congestion control and no other; leave the key out")
		}
		if app.Count > 0 && app.Warmup >= app.Count {
			c.add(join(path, "warmup"), "none of the %d bursts is left to count", app.Count)
		}
		c.checkResults(app, join(path, "results"))
	}
}

// checkAppKeys reports keys the application's type lacks, and keys of other types.
func (c *checker) checkAppKeys(app *App, path string) {
	i := slices.IndexFunc(keysByType, func(k appKeys) bool { return k.Type == app.Type })
	keys := keysByType[i] // the schema allows no other type
	given := c.tree.descend(strings.Split(path, ".")).keys()
	for _, key := range keys.Required {
		if !slices.Contains(given, key) {
			c.add(path, "missing key %s: type %s needs %s", key, app.Type, strings.Join(keys.Required, ", "))
		}
	}
	for _, key := range given {
		if !slices.Contains(slices.Concat(commonAppKeys, keys.Required, keys.Optional), key) {
			c.add(join(path, key), "%s is not for type %s, which has %s", key, app.Type, strings.Join(slices.Concat(keys.Required, keys.Optional), ", "))
		}
	}
	for _, key := range keys.Required {
		if (slices.Contains([]string{"rate_mbps", "bytes", "count"}, key) || key == "gap_ms" && app.Type == "ping") && c.tree.descend(strings.Split(join(path, key), ".")).isZero() {
			c.add(join(path, key), "must be above 0")
		}
	}
	if slices.Contains(given, "client_command") && strings.TrimSpace(app.ClientCommand) == "" {
		c.add(join(path, "client_command"), "is empty: nothing would run")
	}
}

// isZero says that a key is given and 0.
func (n *node) isZero() bool {
	if n == nil {
		return false
	}
	f, err := number(n.value())
	return err == nil && f == 0
}

func (c *checker) checkAppEnds(app *App, path string) {
	from, to := c.isNode(join(path, "from"), app.From), c.isNode(join(path, "to"), app.To)
	if app.From == app.To {
		c.add(join(path, "to"), "%s would talk to itself", app.To)
	}
	if from && app.FromLink != "" {
		c.isEnd(join(path, "from_link"), app.FromLink, app.From)
	}
	if to && app.ToLink != "" {
		c.isEnd(join(path, "to_link"), app.ToLink, app.To)
	}
	if from && to && app.From != app.To {
		c.checkPath(join(path, "to"), app.From, app.To)
	}
}

func (c *checker) checkAppTimes(app *App, path string) {
	duration := c.spec.DurationS
	stopped := app.StopS != 0 || c.tree.descend(strings.Split(join(path, "stop_s"), ".")).isZero()
	latest, start := app.StartS+app.JitterMs/1000, fmt.Sprintf("the start at %g s", app.StartS)
	if app.JitterMs > 0 {
		start = fmt.Sprintf("the latest start at %g s (start_s and jitter_ms)", latest)
	}
	if stopped && app.StopS <= latest {
		c.add(join(path, "stop_s"), "%g is not after %s", app.StopS, start)
	}
	if duration > 0 && app.StopS > duration {
		c.add(join(path, "stop_s"), "%g is after the end of the cell at %g s (duration_s)", app.StopS, duration)
	}
	if duration > 0 && latest >= duration {
		c.add(join(path, "start_s"), "%s is not before the end of the cell at %g s (duration_s)", start, duration)
	}
	if lasts := app.lasts(cmp.Or(app.StopS, duration) - latest); lasts > app.TimeoutS {
		c.add(path, "lasts %g s at the least, and with timeout_s the cell is invalid after %g s; give more of it", lasts, app.TimeoutS)
	}
	if app.StopS == 0 && duration == 0 {
		switch {
		case app.Type == "download" && app.Bytes == 0:
			c.add(path, "does not end: give bytes, stop_s or the experiment's duration_s")
		case app.Type == "stream":
			c.add(path, "does not end: give stop_s or the experiment's duration_s")
		}
	}
}

// lasts is how many seconds the application takes at the least, of those that it may take at the most; 0 and less is without such an end.
func (a *App) lasts(most float64) float64 {
	least := most
	switch {
	case a.Type == "stream" || a.Type == "download" && a.Bytes == 0:
	case a.Count > 0: // of bursts or pings
		least = float64(a.Count-1) * a.GapMs / 1000
	default:
		return 0
	}
	if most > 0 {
		return min(least, most)
	}
	return least
}

var (
	metricName    = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	interfaceName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
)

// PathStep is one step of a result's path into JSON: a key, then any number of indexes.
var PathStep = regexp.MustCompile(`^\.([^.\[\]]+)((?:\[\d+\])*)`)

// behindPath is what follows the last step of a path into JSON: nothing if it is one.
func behindPath(path string) string {
	for path != "" {
		step := PathStep.FindString(path)
		if step == "" {
			break
		}
		path = path[len(step):]
	}
	return path
}

func (c *checker) checkResults(app *App, path string) {
	for _, name := range sortedKeys(app.Results) {
		how, key := app.Results[name], join(path, name)
		if !metricName.MatchString(name) || slices.Contains(reservedWords, name) {
			c.add(key, "the name of a metric is lower-case letters, digits and _")
		}
		if slices.ContainsFunc(app.ownMetrics(c.spec.Measure), func(m Metric) bool { return m.Name == name }) {
			c.add(key, "the command has a metric %s already", name)
		}
		if strings.HasPrefix(how, ".") {
			if rest := behindPath(how); rest != "" {
				c.add(key, "expected .key or .key[0] at %q of the path into JSON", rest)
			}
			continue
		}
		if r, err := regexp.Compile(how); err != nil {
			c.add(key, "%v", err)
		} else if r.NumSubexp() != 1 {
			c.add(key, "the expression must have one group, around the number; it has %d (a path into JSON starts with a dot)", r.NumSubexp())
		}
	}
}

// takenByKernel are names that no link's interface can have: the kernel makes none called default (addrconf_sysctl_register,
// net/ipv6/addrconf.c), and gives every namespace of the guest devices with the others.
var takenByKernel = []string{"default", "erspan0", "gre0", "gretap0", "ip6gre0", "ip6tnl0", "lo", "sit0", "tunl0"}

// checkNames reports names that two things share or that expressions could not refer to.
func (x *Experiment) checkNames() {
	l, seen := x.load, map[string]string{}
	claim := func(name, what, path string, place Place, longest int) {
		owner := seen[name]
		switch {
		case owner == what:
			return
		case !metricName.MatchString(name) && !(interfaceName.MatchString(name) && (what == "node" || what == "link")):
			l.problems.add(place, path, "%q is not a name: lower-case letters, digits and _, starting with a letter (nodes and links that no expression names may have dashes)", name)
		case len(name) > longest:
			l.problems.add(place, path, "%s has %d characters, at most %d are possible", name, len(name), longest)
		case isFunction(name) || slices.Contains(reservedWords, name) || name == "variant" || name == fairness:
			l.problems.add(place, path, "%s is a word of the expressions; choose another name", name)
		case what == "link" && slices.Contains(takenByKernel, name) || what == "node" && name == "wire":
			l.problems.add(place, path, "%s is a name of the kernel's or the lab's own; choose another", name)
		case isMetric(name) && what != "parameter":
			l.problems.add(place, path, "%s is the name of a metric; choose another", name)
		case owner != "":
			l.problems.add(place, path, "%s is already the name of a %s; bounds could not tell them apart", name, owner)
		}
		seen[name] = what
	}
	section := func(key, what string, longest int) {
		for _, name := range l.tree.get(key).keys() {
			claim(name, what, join(key, name), l.tree.find([]string{key, name}), longest)
		}
	}
	const long = 40
	for _, name := range l.parameters() {
		claim(name, "parameter", "", l.parameterPlace(name), long)
	}
	section("variants", "variant", long)
	if len(l.tree.get("variants").keys()) == 0 {
		claim(impliedVariant, "variant", "", l.tree.place, long)
	}
	section("links", "link", 15)   // IFNAMSIZ
	section("nodes", "node", 20)   // FRR and the namespace's files are named after it
	section("routers", "node", 20) // a router is a node
	section("apps", "application", long)
	for _, p := range x.points {
		for _, cell := range p.cells {
			if cell.Spec == nil {
				continue
			}
			for _, name := range sortedKeys(cell.Spec.Links) {
				for i, end := range cell.Spec.Links[name].Ends {
					path := []string{"links", name, "ends", fmt.Sprint(i)}
					claim(end, "node", strings.Join(path, "."), l.tree.find(path), 20)
				}
			}
		}
	}
}

// parameterPlace is where a parameter is declared.
func (l *loader) parameterPlace(name string) Place {
	place := l.tree.find([]string{"params"})
	if l.tree.get("params").get(name) != nil {
		return l.tree.find([]string{"params", name})
	}
	for _, axis := range l.tree.get("matrix").keys() {
		if slices.Contains(axisNames(axis), name) {
			return l.tree.find([]string{"matrix", axis})
		}
	}
	for _, variant := range l.tree.get("variants").keys() {
		if values := l.tree.descend([]string{"variants", variant}); values.get(name) != nil {
			return values.find([]string{name})
		}
	}
	return place
}

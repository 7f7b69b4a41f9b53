package experiment

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Cell is one run: one point of the matrix, one variant, one seed.
type Cell struct {
	// Point counts the combinations of the matrix from 0.
	Point int
	// Params are all parameters with their values.
	Params map[string]any
	// Variant is the alternative that runs.
	Variant string
	// Seed of every random process, from 1.
	Seed int
	// Spec is the file with all parameters filled in: applications and events whose `when` is false are gone, every link's
	// Forward and Backward are complete, recordings are read, defaults are set, each BGP session is known to both routers.
	// Cells that differ in their seed only share it; do not change it.
	Spec *Spec
}

// Cells are all runs: by point (the last axis of the matrix changes fastest), then variant, then seed.
func (x *Experiment) Cells() []Cell {
	var cells []Cell
	for _, p := range x.points {
		for _, c := range p.cells {
			for c.Seed = 1; c.Seed <= x.Seeds; c.Seed++ {
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// joined is how many subflows an MPTCP connection needs where the file does not say: without a join its numbers are TCP's.
const joined = 2

// resolve fills the parameters in and checks the result. It returns nil if there is a mistake.
func (l *loader) resolve(b *bindings) *Spec {
	tree := l.tree.only(func(key string) bool {
		return isPerCell(key) || slices.Contains([]string{"name", "group", "question"}, key)
	})
	var events []int // places of those that happen
	for _, section := range []string{"apps", "timeline"} {
		if n := tree.get(section); n != nil {
			n, events = l.present(b, n, section)
			tree = tree.with(section, tree.find([]string{section}), n)
		}
	}
	if tree.get("measure") == nil { // for its defaults
		tree = tree.with("measure", tree.place, &node{place: tree.place, kind: yaml.MappingNode})
	}
	before := len(l.problems)
	defer func() { ofFile(l.problems[before:], events) }()
	for _, key := range perCell {
		if n := tree.get(key); n != nil {
			tree = tree.with(key, tree.find([]string{key}), b.substitute(n, key))
		}
	}
	inst := instance(tree, fileSchema())
	validate(tree, inst, &l.problems)
	if len(l.problems) > before {
		return nil
	}
	spec := new(Spec)
	if err := decode(inst, spec); err != nil {
		l.problems.add(tree.place, "", "%v", err)
		return nil
	}
	for i, name := range tree.get("links").keys() {
		spec.Links[name].Index = i + 1
	}
	apps := slices.Sorted(slices.Values(l.tree.get("apps").keys()))
	for name, app := range spec.Apps {
		app.Index = slices.Index(apps, name)
		if least := tree.get("apps").get(name).get("min_subflows"); app.Protocol == "mptcp" && (least == nil || least.null()) {
			app.MinSubflows = joined
		}
	}
	for i := range spec.Timeline {
		spec.Timeline[i].Index = events[i]
	}
	l.readTraces(spec, tree)
	check(spec, tree, apps, &l.problems)
	if len(l.problems) > before {
		return nil
	}
	complete(spec)
	return spec
}

// present is the mapping or list without the entries whose `when` is false in this cell, and of a list the places of those that stay.
func (l *loader) present(b *bindings, n *node, path string) (*node, []int) {
	keep := func(entry *node, path string) (*node, bool) {
		when := entry.get("when")
		if when == nil || when.kind != yaml.ScalarNode {
			return entry, true
		}
		yes := when.null() || l.condition(b, when.text, entry.find([]string{"when"}), join(path, "when"))
		return entry.only(func(key string) bool { return key != "when" }), yes
	}
	copied := *n
	copied.fields, copied.items = nil, nil
	for _, f := range n.fields {
		if entry, yes := keep(f.value, join(path, f.key)); yes {
			copied.fields = append(copied.fields, field{f.key, f.place, entry})
		}
	}
	var places []int
	for i, item := range n.items {
		if entry, yes := keep(item, join(path, strconv.Itoa(i))); yes {
			copied.items, places = append(copied.items, entry), append(places, i)
		}
	}
	return &copied, places
}

// ofFile gives problems of a cell's events the places of these in the file.
func ofFile(problems Problems, places []int) {
	for i := range problems {
		parts := strings.Split(problems[i].Path, ".")
		if parts[0] != "timeline" || len(parts) == 1 {
			continue
		}
		if n, err := strconv.Atoi(parts[1]); err == nil && n < len(places) {
			parts[1] = strconv.Itoa(places[n])
			problems[i].Path = strings.Join(parts, ".")
		}
	}
}

func decode(inst any, spec *Spec) error {
	text, err := json.Marshal(inst)
	if err != nil {
		return fmt.Errorf("encode the experiment: %w", err)
	}
	if err := json.Unmarshal(text, spec); err != nil {
		return fmt.Errorf("decode the experiment: %w", err)
	}
	return nil
}

// complete brings a checked spec into the form the guest works from.
func complete(spec *Spec) {
	presentJain(spec)
	for _, link := range spec.Links {
		link.Forward, link.Backward = link.Direction.With(link.Forward), link.Direction.With(link.Backward)
		link.Direction = Direction{}
	}
	for name, router := range spec.Routers {
		for peer := range router.Peers {
			if back := spec.Routers[peer]; back.Peers[name] == nil {
				if back.Peers == nil {
					back.Peers = map[string]*Peer{}
				}
				back.Peers[name] = &Peer{}
			}
		}
	}
}

// directions calls visit for every direction in the file with its path, nested ones included.
func directions(spec *Spec, visit func(path string, d *Direction)) {
	var all func(path string, d *Direction)
	all = func(path string, d *Direction) {
		if d != nil {
			visit(path, d)
			all(join(path, "then"), d.Then)
		}
	}
	for _, name := range sortedKeys(spec.Links) {
		path := join("links", name)
		all(path, &spec.Links[name].Direction)
		all(join(path, "forward"), spec.Links[name].Forward)
		all(join(path, "backward"), spec.Links[name].Backward)
	}
	for i := range spec.Timeline {
		path := join("timeline", strconv.Itoa(i))
		all(join(path, "set"), spec.Timeline[i].Set)
		all(join(path, "forward"), spec.Timeline[i].Forward)
		all(join(path, "backward"), spec.Timeline[i].Backward)
	}
}

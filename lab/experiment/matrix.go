package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxCells limits points x variants, against a slip of the pen.
const maxCells = 10_000

// impliedVariant is the name of the only variant of a file that declares none.
const impliedVariant = "run"

// Axis is one dimension of the matrix: parameters that change together.
type Axis struct {
	// Names of the parameters.
	Names []string
	place Place
	rows  [][]*node // each with a value per name
	set   bool      // given with --set: wins over the variants
}

// point is one combination of the matrix, with the cells of its variants that are not skipped.
type point struct {
	params map[string]any // the parameters of the matrix
	cells  []Cell         // without seeds
}

func axisNames(key string) []string {
	names := strings.Split(key, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

// matrix reads the axes and the variants. They are usable if neither they nor the parameters have a mistake.
func (l *loader) matrix() (axes []Axis, variants []string, usable bool) {
	if matrix := l.tree.get("matrix"); matrix != nil {
		for _, f := range matrix.fields {
			axes = append(axes, l.axis(f))
		}
	}
	axes = l.force(axes)
	seen := map[string]bool{}
	for _, axis := range axes {
		for _, name := range axis.Names {
			if seen[name] {
				l.problems.add(axis.place, "matrix", "%s is in two lists", name)
			}
			seen[name] = true
			l.checkPinned(axis, name)
		}
	}
	variants = l.tree.get("variants").keys()
	if len(variants) == 0 {
		variants = []string{impliedVariant}
	}
	usable = !slices.ContainsFunc(l.problems, func(p Problem) bool {
		section, _, _ := strings.Cut(p.Path, ".")
		return slices.Contains([]string{"params", "matrix", "variants"}, section)
	})
	return axes, variants, usable
}

// checkPinned reports variants that set a parameter of the matrix. Their cells would be the same at all points, and nothing in a
// result would tell to which point one belongs.
func (l *loader) checkPinned(axis Axis, name string) {
	for _, variant := range l.tree.get("variants").keys() {
		path := []string{"variants", variant, name}
		if !axis.set && l.tree.descend(path) != nil {
			l.problems.add(l.tree.find(path), strings.Join(path, "."), pinned, name, variant, name)
		}
	}
}

const pinned = "%s is in the matrix, which has a value for every point; where it is used write $(variant == %q ? ... : %s) instead"

// checkSame reports values of the matrix that depend on the variant, for the same reason: a point has those of its first one.
func (l *loader) checkSame(axes []Axis, row []int, p point, c Cell) {
	for i, axis := range axes {
		for j, name := range axis.Names {
			if fmt.Sprint(c.Params[name]) != fmt.Sprint(p.params[name]) {
				l.problems.add(axis.rows[row[i]][j].place, "matrix."+strings.Join(axis.Names, ","), pinned, name, c.Variant, name)
			}
		}
	}
}

// axis reads one list of the matrix.
func (l *loader) axis(f field) Axis {
	axis, path := Axis{Names: axisNames(f.key), place: f.place}, "matrix."+f.key
	if f.value.kind != yaml.SequenceNode {
		return axis // against the schema
	}
	if len(f.value.items) == 0 {
		l.problems.add(f.place, path, "must be a list of at least one value")
	}
	for i, item := range f.value.items {
		row, err := axisRow(axis.Names, item)
		if err != nil {
			l.problems.add(item.place, fmt.Sprintf("%s.%d", path, i), "%v", err)
			continue
		}
		axis.rows = append(axis.rows, row)
	}
	return axis
}

// axisRow gives each of the names its value: the item itself, its elements, or its entries.
func axisRow(names []string, item *node) ([]*node, error) {
	if len(names) == 1 {
		return []*node{item}, nil
	}
	if item.kind == yaml.SequenceNode && len(item.items) == len(names) {
		return item.items, nil
	}
	if item.kind != yaml.MappingNode || len(item.fields) != len(names) {
		return nil, fmt.Errorf("must be a list of %d values or a mapping with the keys %s", len(names), strings.Join(names, ", "))
	}
	row := make([]*node, len(names))
	for i, name := range names {
		if row[i] = item.get(name); row[i] == nil {
			return nil, fmt.Errorf("has no value for %s", name)
		}
	}
	return row, nil
}

// force makes each parameter of a --set an axis of its own, in place of the one it had.
func (l *loader) force(axes []Axis) []Axis {
	for _, f := range l.forced {
		forced := Axis{Names: []string{f.key}, place: f.place, set: true}
		for _, value := range f.value.items {
			forced.rows = append(forced.rows, []*node{value})
		}
		i := slices.IndexFunc(axes, func(a Axis) bool { return slices.Contains(a.Names, f.key) })
		switch {
		case i < 0:
			axes = append(axes, forced)
		case len(axes[i].Names) == 1:
			axes[i] = forced
		default:
			axes[i] = axes[i].without(f.key)
			axes = append(axes, forced)
		}
	}
	return axes
}

// without is the axis with one parameter taken out; rows that are then equal count once.
func (a Axis) without(name string) Axis {
	i := slices.Index(a.Names, name)
	rest := Axis{Names: slices.Delete(slices.Clone(a.Names), i, i+1), place: a.place, set: a.set}
	seen := map[string]bool{}
	for _, row := range a.rows {
		row = slices.Delete(slices.Clone(row), i, i+1)
		if key := rowKey(row); !seen[key] {
			rest.rows = append(rest.rows, row)
			seen[key] = true
		}
	}
	return rest
}

// rowKey is equal for rows that a result could not tell apart: 1, 1.0 and "1" are the same there.
func rowKey(row []*node) string {
	key := ""
	for _, value := range row {
		key += fmt.Sprintf("%v\x00", value.value())
	}
	return key
}

// sameAs reports a point with the values of another: its runs would count as runs of other seeds. Both are rows of the axes.
func (l *loader) sameAs(axes []Axis, other, row []int) {
	for i, axis := range axes {
		if row[i] != other[i] {
			l.problems.add(axis.rows[row[i]][0].place, "matrix."+strings.Join(axis.Names, ","), "the same value is in the list twice")
			return
		}
	}
}

// points is the product of the axes, the last one changing fastest.
func (l *loader) points(axes []Axis, variants []string) []point {
	count := len(variants)
	for _, axis := range axes {
		if count *= len(axis.rows); count > maxCells {
			l.problems.add(l.tree.find([]string{"matrix"}), "matrix", "makes more than %d cells; split the experiment", maxCells)
			return nil
		}
	}
	var points []point
	row := make([]int, len(axes))
	seen := map[string][]int{} // row of each point by its name
	for range count / len(variants) {
		before := len(l.problems)
		if p := l.point(axes, row, variants, len(points)); len(p.cells) > 0 {
			points = append(points, p)
			l.checkForced(p.cells)
			if other, twice := seen[p.name()]; twice && len(l.problems) == before {
				l.sameAs(axes, other, row)
			}
			seen[p.name()] = slices.Clone(row)
		}
		for i := len(axes) - 1; i >= 0; i-- {
			if row[i]++; row[i] < len(axes[i].rows) {
				break
			}
			row[i] = 0
		}
	}
	if len(points) == 0 && len(l.problems) == 0 {
		l.problems.add(l.tree.find([]string{"skip"}), "skip", "leaves out every cell")
	}
	return points
}

// point makes the cells of one combination. A parameter's value is the last of: its default, the matrix or the variant, --set.
func (l *loader) point(axes []Axis, row []int, variants []string, index int) point {
	p := point{params: map[string]any{}}
	for _, variant := range variants {
		raw := map[string]*node{"variant": {place: l.tree.place, kind: yaml.ScalarNode, tag: tagString, text: variant}}
		bind := func(m *node) {
			for _, key := range m.keys() {
				raw[key] = m.get(key)
			}
		}
		matrix := func(set bool) {
			for i, axis := range axes {
				for j, name := range axis.Names {
					if axis.set == set {
						raw[name] = axis.rows[row[i]][j]
					}
				}
			}
		}
		bind(l.tree.get("params"))
		matrix(false)
		bind(l.tree.descend([]string{"variants", variant}))
		matrix(true)

		b := newBindings(l, raw)
		if l.skips(b) {
			continue
		}
		params := b.values()
		delete(params, "variant")
		if len(p.cells) == 0 {
			for _, axis := range axes {
				for _, name := range axis.Names {
					p.params[name] = params[name]
				}
			}
		}
		p.cells = append(p.cells, Cell{Point: index, Params: params, Variant: variant, Spec: l.resolve(b)})
		l.checkSame(axes, row, p, p.cells[len(p.cells)-1])
	}
	return p
}

func (l *loader) skips(b *bindings) bool {
	source := l.tree.string("skip")
	if source == "" {
		return false
	}
	return l.condition(b, source, l.tree.find([]string{"skip"}), "skip")
}

// condition evaluates a condition over the parameters; one that cannot be is a problem, and false.
func (l *loader) condition(b *bindings, source string, place Place, path string) bool {
	v, err := b.evaluate(source)
	yes, ok := v.(bool)
	switch {
	case err != nil:
		l.problems.add(place, path, "%s: %v", source, err)
	case !ok:
		l.problems.add(place, path, "%s is %v; a condition must be true or false", source, v)
	}
	return yes
}

// checkUsed reports parameters that change nothing: most likely a slip in a name. With --set, which may replace the only use of one, it looks
// only at the names that the file has not, which come with a section that is set as a whole.
func (l *loader) checkUsed() {
	for _, name := range l.parameters() {
		place := l.parameterPlace(name)
		switch {
		case l.used[name]:
		case len(l.opt.Set) > 0:
			if !slices.Contains(l.declared, name) {
				l.problems.add(place, "", noParameter, name, suggest(name, l.declared))
			}
		case place.File == l.file: // a topology's may be used only by what the experiment replaced
			l.problems.add(place, "", "the parameter %s is not used; write $%s where it belongs", name, name)
		}
	}
}

// compileOver compiles an expression and checks its names, for conditions over parameters that are known.
func (l *loader) compileOver(source string, scope map[string]any) (*expression, error) {
	e, err := l.compile(source)
	if err != nil {
		return nil, err
	}
	for _, name := range e.names() {
		l.used[name[0]] = true
	}
	return e, e.check(scope)
}

// sortedKeys are the keys of a map in order, so that nothing depends on the order of iteration.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

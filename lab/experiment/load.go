package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"plait.dev/plait/lab/result"
)

// Options change an experiment without changing its file.
type Options struct {
	// Set holds key=value: a parameter (several values separated by commas are a matrix axis) or a dotted path into the
	// file, e.g. links.a.rate_mbps=10. The value is YAML.
	Set []string
	// Seeds replaces how many seeds every cell runs with; 0 keeps what the file says.
	Seeds int
	// Traces is a directory of recordings in mahimahi format (*.up, *.down, also .gz).
	Traces string
}

// Experiment is an experiment file that was found to be right: every cell can run and every bound can be evaluated.
type Experiment struct {
	// Spec is what the file says about all cells: its name, question, bounds, published numbers and plots. What differs
	// from cell to cell is empty here; see Cells.
	Spec *Spec
	// File is the file as it was read; Source has its topology file behind it, and the values that --set replaced.
	File, Source string
	// Axes of the matrix, in the order of the file.
	Axes []Axis
	// Variants by name, in the order of the file; "run" alone if the file has none.
	Variants []string
	// Seeds is how many seeds every cell runs with.
	Seeds int

	points []point
	// conditions are what a condition sees at each of the points, made when the first is asked for.
	conditions []map[string]any
	load       *loader
}

// Section is what the file has under one of its keys, with the key, as it is written.
func (x *Experiment) Section(key string) string {
	var b strings.Builder
	in := false
	for line := range strings.Lines(x.File) {
		if strings.Trim(line[:1], " #-\r\n") != "" { // a list may begin where its key does
			in = strings.HasPrefix(line, key+":")
		}
		if in {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Load reads an experiment: the name of one in the binary, or the path of a file (it has a slash or ends in .yaml). Every
// mistake that can be found without running is reported, as Problems.
func Load(nameOrPath string, opt Options) (*Experiment, error) {
	if !IsPath(nameOrPath) {
		text, err := embedded.ReadFile(nameOrPath + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("load experiment %s: there is none of that name%s (plait lab list shows all; the path of a file has a slash or ends in .yaml)",
				nameOrPath, suggest(nameOrPath, names(List())))
		}
		return load(nameOrPath+".yaml", ".", text, opt)
	}
	text, err := os.ReadFile(nameOrPath)
	if err != nil {
		return nil, fmt.Errorf("load experiment: %w", err)
	}
	return load(nameOrPath, filepath.Dir(nameOrPath), text, opt)
}

// IsPath says that a name on a command line is of a file, and not of one of plait's own experiments.
func IsPath(name string) bool {
	return strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".yaml")
}

// loader holds what is needed only while an experiment is read or its bounds are evaluated.
type loader struct {
	opt          Options
	file         string
	dir          string // relative paths in the file start here
	tree         *node  // the file with its topology and --set merged in
	problems     Problems
	declared     []string // parameters before --set
	forced       []field  // parameters given with --set, each with the list of its values
	replaced     string   // the other --set, which no parameter of a cell tells: a line each
	expressions  map[string]*expression
	recordings   map[string]recording // by the name in the file
	noRecordings []string             // in the directory of $traces
	used         map[string]bool      // parameters that are referred to
}

func (l *loader) compile(source string) (*expression, error) {
	if e, ok := l.expressions[source]; ok {
		return e, nil
	}
	e, err := compileExpression(source)
	if err == nil {
		l.expressions[source] = e
	}
	return e, err
}

// perCell are the keys whose values may hold parameters; they are worked out for every cell.
var perCell = []string{"kernel", "sysctl", "nodes", "links", "routers", "apps", "timeline", "measure", "duration_s"}

func isPerCell(key string) bool { return slices.Contains(perCell, key) }

// mergeTopology puts the topology file below the experiment and returns its text.
func (l *loader) mergeTopology() string {
	for _, set := range l.opt.Set { // the others come later: their paths may lead into the topology
		if name, ok := strings.CutPrefix(set, "topology="); ok {
			place := Place{File: "--set " + set}
			l.tree = l.tree.with("topology", place, &node{place: place, kind: yaml.ScalarNode, tag: tagString, text: name})
		}
	}
	name := l.tree.string("topology")
	if name == "" {
		return ""
	}
	place := l.tree.find([]string{"topology"})
	file, text, err := l.readTopology(name)
	if err != nil {
		l.problems.add(place, "topology", "%v", err)
		return ""
	}
	base, problems := parseYAML(file, text)
	l.problems = append(l.problems, problems...)
	if base == nil {
		return ""
	}
	allowed := []string{"about", "params", "sysctl", "nodes", "links", "routers"}
	for _, f := range base.fields {
		if !slices.Contains(allowed, f.key) {
			l.problems.add(f.place, "", "unknown key %s; a topology has %s", f.key, strings.Join(allowed, ", "))
		}
	}
	l.tree = merge(base.only(func(key string) bool { return key != "about" && slices.Contains(allowed, key) }), l.tree)
	return fmt.Sprintf("\n# topology: %s\n---\n%s", name, text)
}

func (l *loader) readTopology(name string) (file string, text []byte, err error) {
	if !IsPath(name) {
		file = path.Join("topology", name+".yaml")
		if text, err = embedded.ReadFile(file); err != nil {
			err = fmt.Errorf("there is no topology %s%s", name, suggest(name, names(Topologies())))
		}
		return file, text, err
	}
	file = l.relative(name)
	text, err = os.ReadFile(file)
	return file, text, err
}

// relative is a path of the file as the process needs it.
func (l *loader) relative(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(l.dir, name)
}

// static checks and decodes what is the same in all cells.
func (l *loader) static() *Spec {
	tree := l.tree.only(func(key string) bool { return !isPerCell(key) })
	inst := instance(tree, fileSchema())
	before := len(l.problems)
	validate(tree, inst, &l.problems)
	if base := strings.TrimSuffix(filepath.Base(l.file), ".yaml"); tree.string("name") != "" && tree.string("name") != base {
		l.problems.add(tree.find([]string{"name"}), "name", "%s is not the file's base name %s", tree.string("name"), base)
	}
	if len(l.problems) > before {
		return nil
	}
	spec := new(Spec)
	if err := decode(inst, spec); err != nil {
		l.problems.add(tree.place, "", "%v", err)
		return nil
	}
	return spec
}

// load reads an experiment from text. Paths in it are relative to dir.
func load(file, dir string, text []byte, opt Options) (*Experiment, error) {
	if err := checkTraces(opt.Traces); err != nil {
		return nil, err
	}
	tree, problems := parseYAML(file, text)
	if tree == nil {
		return nil, problems
	}
	l := &loader{opt: opt, file: file, dir: dir, tree: tree, problems: problems,
		expressions: map[string]*expression{}, recordings: map[string]recording{}, used: map[string]bool{}}
	x := &Experiment{File: string(text), Source: string(text), load: l}
	x.Source += l.mergeTopology()
	l.applySet()
	x.Source += l.replaced
	if err := l.expandTraces(); err != nil {
		return nil, err
	}
	x.Spec = l.static()
	var usable bool
	if x.Axes, x.Variants, usable = l.matrix(); usable {
		x.points = l.points(x.Axes, x.Variants)
		x.checkNames()
	}
	if opt.Seeds < 0 || opt.Seeds > 10_000 {
		l.problems.add(Place{File: fmt.Sprintf("--seeds %d", opt.Seeds)}, "", "must be from 1 to 10000")
	}
	if len(l.problems) == 0 {
		x.Seeds = cmp.Or(opt.Seeds, x.Spec.Seeds)
		x.checkExpressions()
	}
	if len(l.problems) == 0 {
		l.checkUsed()
	}
	if len(l.problems) > 0 {
		return nil, l.problems.sorted()
	}
	return x, nil
}

// Problem is a mistake in a cell that somebody else has found, whose text begins with the path of the key that is wrong and a colon, with its place.
func (x *Experiment) Problem(mistake error) Problem {
	path, text, _ := strings.Cut(mistake.Error(), ": ")
	return Problem{Place: x.load.tree.find(strings.Split(path, ".")), Path: path, Text: text}
}

// Describe is the experiment's entry in a result file.
func (x *Experiment) Describe() result.Experiment {
	out := result.Experiment{Name: x.Spec.Name, Group: x.Spec.Group, Question: x.Spec.Question, About: x.Spec.About, Source: x.Source}
	for _, axis := range x.Axes {
		out.Matrix = append(out.Matrix, axis.Names...)
	}
	for _, p := range x.Spec.Plots {
		plot := result.Plot{Kind: p.Kind, Title: p.Title, Show: p.Show, X: p.X, Y: p.Y, LogY: p.LogY}
		if p.When != "" {
			points, _ := x.where(p.When) // checked by Load
			if len(points) == 0 {
				continue // --set left none of its points
			}
			for _, point := range points {
				plot.Points = append(plot.Points, point.params)
			}
		}
		out.Plots = append(out.Plots, plot)
	}
	return out
}

// ErrTraces is the error of every experiment that is loaded with a directory of recordings that is none.
var ErrTraces = errors.New("find recordings for --traces")

// ErrNoTraces is the error of an experiment that replays recordings, loaded without Options.Traces.
var ErrNoTraces = errors.New("this experiment needs recordings: give their directory with --traces DIR")

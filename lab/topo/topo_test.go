package topo

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"plait.dev/plait/lab/experiment"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

// parse reads a topology as the loader would hand it over: parameters filled in, places of links counted, directions complete.
func parse(t *testing.T, text string) *experiment.Spec {
	t.Helper()
	var doc map[string]any
	var order struct{ Links yaml.Node }
	for _, into := range []any{&doc, &order} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	encoded, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	s := &experiment.Spec{Kernel: "6.12"}
	if err := json.Unmarshal(encoded, s); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(order.Links.Content); i += 2 {
		l := s.Links[order.Links.Content[i].Value]
		l.Index = i/2 + 1
		l.Forward, l.Backward = complete(t, l.Direction, l.Forward), complete(t, l.Direction, l.Backward)
	}
	return s
}

// complete is what is given for both directions with what is given for this one on top.
func complete(t *testing.T, both experiment.Direction, own *experiment.Direction) *experiment.Direction {
	t.Helper()
	d := &experiment.Direction{}
	for _, from := range []any{both, own} {
		encoded, err := json.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(encoded, d); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// parameters of epe.yaml, different from each other where the golden should tell them apart.
var parameters = strings.NewReplacer("$a_mbps", "30", "$b_mbps", "15", "$queue_packets", "100", "$a_delay_ms", "10", "$b_delay_ms", "50", "$a_local_pref", "200")

// read returns the topology of a file, with more YAML behind it.
func read(t *testing.T, file, more string) *Topology {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	topology, err := New(parse(t, parameters.Replace(string(text))+more))
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

const epeFile = "../experiment/topology/epe.yaml"

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("glob testdata: %v, %d files", err, len(files))
	}
	for _, file := range append(files, epeFile) {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			topology := read(t, file, "")
			got := topology.Draw() + render(topology)
			golden := "testdata/" + name + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("plan differs from %s (go test -update rewrites it):\n%s", golden, firstDifference(got, string(want)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

// render writes a plan as text, in the order in which it is executed.
func render(t *Topology) string {
	var b strings.Builder
	p := t.Plan()
	fmt.Fprintf(&b, "\nnamespaces: %s\n", strings.Join(p.Namespaces, " "))
	renderSteps(&b, p.Steps)
	for _, f := range p.Files {
		fmt.Fprintf(&b, "\n== file %s %o %s\n%s", f.Path, f.Mode, f.Owner, f.Content)
	}
	if len(p.Emulated) > 0 {
		fmt.Fprintf(&b, "\nemulated: %s\n", strings.Join(p.Emulated, " "))
	}
	fmt.Fprintf(&b, "\n# after\n")
	renderSteps(&b, p.After)
	for _, d := range p.Daemons {
		fmt.Fprintf(&b, "%s: %s\n", d.NS, strings.Join(d.Argv, " "))
	}
	fmt.Fprintf(&b, "\n# links\n")
	for _, l := range t.links {
		renderSteps(&b, t.LinkSteps(l.name, l.spec, 1))
	}
	for _, c := range p.Ready {
		fmt.Fprintf(&b, "\nready: %s\n  %s: %s\n  want %s\n", c.What, c.NS, c.Command, c.Want)
	}
	return b.String()
}

func renderSteps(b *strings.Builder, steps []Step) {
	for _, s := range steps {
		ns := s.NS
		if ns == "" {
			ns = "(guest)"
		}
		fmt.Fprintf(b, "\n%s %s\n", ns, s.Tool)
		for _, line := range s.Lines {
			fmt.Fprintf(b, "  %s\n", line)
		}
	}
}

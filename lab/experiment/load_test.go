package experiment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plait.dev/plait/internal/rung"
)

// TestBadFiles compares every message about the files in testdata/bad with the .txt beside it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "-base.yaml") {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := Load(file, Options{})
			if err == nil {
				t.Fatal("loads without a mistake")
			}
			if !strings.HasPrefix(err.Error(), "testdata/bad/") {
				t.Errorf("the message does not start with the place: %v", err)
			}
			checkGenerated(t, strings.TrimSuffix(file, ".yaml")+".txt", []byte(err.Error()+"\n"))
		})
	}
}

// TestEmbedded loads every experiment in the binary.
func TestEmbedded(t *testing.T) {
	if len(List()) == 0 || len(Topologies()) == 0 {
		t.Fatal("nothing is embedded")
	}
	for _, info := range List() {
		t.Run(info.Name, func(t *testing.T) {
			opt := Options{}
			if text, err := os.ReadFile(info.Name + ".yaml"); err != nil {
				t.Fatal(err)
			} else if strings.Contains(string(text), "$traces") {
				opt.Traces = "testdata/traces"
			}
			x, err := Load(info.Name, opt)
			if err != nil {
				t.Fatal(err)
			}
			if info.Question != x.Spec.Question || info.Group != x.Spec.Group {
				t.Errorf("listed as %+v", info)
			}
		})
	}
}

func TestLoadNames(t *testing.T) {
	for name, want := range map[string]string{
		"tcp-singel":     "did you mean tcp-single?",
		"no/such.yaml":   "no such file",
		"nothing-at-all": "plait lab list",
	} {
		if _, err := Load(name, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := Load("burst-traces", Options{}); err == nil || !strings.Contains(err.Error(), "--traces") {
		t.Errorf("without recordings: %v", err)
	}
}

// loadText loads an experiment named test in group stock from the rest of its file.
func loadText(t *testing.T, rest string, opt Options) (*Experiment, error) {
	t.Helper()
	return load("test.yaml", "testdata/good", []byte("name: test\ngroup: stock\nquestion: Does it work?\n"+rest), opt)
}

func mustLoad(t *testing.T, rest string, opt Options) *Experiment {
	t.Helper()
	x, err := loadText(t, rest, opt)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

const bulk = `
apps: {bulk: {type: download, from: server, to: client, bytes: 1000}}
`

func TestTopologyMerge(t *testing.T) {
	x := mustLoad(t, `
topology: ./base.yaml
params: {rate: 7}
links:
  c: {ends: [client, server]}
  b: {delay_ms: 3, queue_packets: null}
`+bulk, Options{})
	spec := x.Cells()[0].Spec
	for name, index := range map[string]int{"b": 1, "a": 2, "c": 3} {
		if spec.Links[name].Index != index {
			t.Errorf("link %s has index %d, want %d: the topology's come first, in its order", name, spec.Links[name].Index, index)
		}
	}
	b := spec.Links["b"].Forward
	if *b.DelayMs != 3 || *b.RateMbps != 7 || b.QueuePackets != nil {
		t.Errorf("b is %s", b)
	}
	if !spec.Nodes["router"].Forward {
		t.Error("the topology's nodes are lost")
	}
	if !strings.Contains(x.Source, "question: Does it work?") || !strings.Contains(x.Source, "A base.") {
		t.Errorf("the source lacks a file:\n%s", x.Source)
	}
}

// TestSetTopology: another topology of the same names under the same question.
func TestSetTopology(t *testing.T) {
	x := mustLoad(t, "topology: epe\n"+bulk, Options{Set: []string{"topology=./base.yaml", "links.a.delay_ms=4"}})
	if links := x.Cells()[0].Spec.Links; links["csp"] != nil || links["a"] == nil || *links["a"].Forward.DelayMs != 4 {
		t.Errorf("links %v are not those of base.yaml", links)
	}
	if _, err := loadText(t, "topology: epe\n"+bulk, Options{Set: []string{"topology=eep"}}); err == nil || !strings.HasPrefix(err.Error(), "--set topology=eep: topology: there is no topology eep") {
		t.Error(err)
	}
}

func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.yaml")
	if rung.Full() { // as make fuzz does; TestEmbedded loads these anyway
		more, _ := filepath.Glob("*.yaml")
		files = append(files, more...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "links.a.rate_mbps=3")
		f.Add(text, "rate=1,2")
	}
	f.Fuzz(func(t *testing.T, text []byte, set string) {
		for _, opt := range []Options{{}, {Set: []string{set}}} {
			if x, err := load("fuzz.yaml", "testdata/good", text, opt); err == nil && len(x.points) > 0 {
				x.Evaluate(nil)
			}
		}
	})
}

func TestNoYAML(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "x.yaml:1:1: the file is empty",
		"name: x\nb:\n  - a\n  c: 1\n":    "x.yaml:4: did not find expected '-' indicator",
		"a: b: c\n":                       "x.yaml:1: mapping values are not allowed",
		"name: x\nquestion: é Caf\xe9?\n": "x.yaml:2:16: invalid",
		"name: x\n---\nb: 1\n":            "x.yaml:2:1: a second YAML document starts here",
		"name: x\n---\n{{{\n":             "x.yaml:4: did not find expected node content",
	} {
		_, problems := parseYAML("x.yaml", []byte(text))
		if len(problems) != 1 || !strings.HasPrefix(problems.Error(), want) {
			t.Errorf("%q: %v, want %s", text, problems, want)
		}
	}
}

func TestSection(t *testing.T) {
	x := &Experiment{File: "name: x\n# what happens\ntimeline:\n- {at_s: 1}\n\n  # and then\n- {at_s: 2}\napps: {a: {}}\n"}
	for key, want := range map[string]string{"timeline": "timeline:\n- {at_s: 1}\n\n  # and then\n- {at_s: 2}\n", "apps": "apps: {a: {}}\n", "links": ""} {
		if got := x.Section(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

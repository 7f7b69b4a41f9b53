// Package arch tests the project as a whole: who imports whom, and that the documentation is complete and its links
// resolve. Run it with
//
//	go test ./internal/arch
package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "plait.dev/plait"
)

// rule forbids an import. Packages of this module are written ./lab/link; ... at the end takes in what begins with the rest.
type rule struct {
	in     []string // these packages
	except []string // without these
	not    []string // import none of these
	but    []string // without these
	why    string
}

// kernel are the packages that speak to the kernel behind the standard library's back.
var kernel = []string{"github.com/vishvananda/...", "github.com/mdlayher/...", "golang.org/x/sys/unix", "kernel.org/..."}

// everything outside the standard library, and of this module.
var everything = []string{"./...", "*.*"}

// The room dashboard is planned; its rules hold from its first file on. ARCHITECTURE.md shows the same as a table.
var rules = []rule{
	{in: []string{"./lab/link"}, not: everything, why: "link models are pure and usable without plait"},
	{in: []string{"./lab/result"}, not: everything, why: "the result file's format depends on nothing"},
	{in: []string{"./lab/experiment"}, not: []string{"./..."}, but: []string{"./lab/link", "./lab/result", "./internal/badyaml"},
		why: "an experiment is a question, checked before anything runs"},
	{in: []string{"./lab/report"}, not: []string{"./..."}, but: []string{"./lab/result", "./lab/experiment"},
		why: "a report is made from result files alone, also from somebody else's"},
	{in: []string{"./lab/table"}, not: []string{"./..."}, but: []string{"./lab/result"}, why: "tables are made of result files alone"},
	{in: []string{"./lab/topo"}, not: []string{"./..."}, but: []string{"./lab/experiment"}, why: "a plan touches no system"},
	{in: []string{"./lab/emu", "./lab/traffic", "./lab/measure", "./lab/queue"}, not: []string{"./lab", "./lab/vm", "./lab/image", "./lab/report"},
		why: "the guest's parts know nothing of the host's"},
	{in: []string{"./..."}, except: []string{"./lab/emu", "./lab/traffic", "./lab/measure", "./lab/queue", "./lab/netns", "./lab/agent", "./lab/vm", "./daemon", "./egress/route", "./egress/mptcp", "./stripe", "./stripe/cp"},
		not: kernel, why: "only the guest's parts, the emulator's driver, the daemon, egress, stripe's sockets and its files touch the kernel"},
	{in: []string{"./cmd/..."}, not: everything, but: []string{"./lab...", "./daemon", "./signals", "./congestion", "./stripe...", "github.com/spf13/cobra...", "github.com/spf13/pflag", "golang.org/x/term"}, why: "commands hold no logic"},
	{in: []string{"./lab..."}, not: []string{"./..."}, but: []string{"./lab...", "./internal/..."}, why: "the lab drives plait from outside, as a user does"},
	{in: []string{"./signals..."}, not: []string{"./..."}, but: []string{"./signals..."}, why: "signals are measured, not interpreted"},
	{in: []string{"./..."}, except: []string{"./daemon"}, not: []string{"./bpf..."}, why: "only it loads plait's programs and reads their maps"},
	{in: []string{"./bpf...", "./stripe..."}, not: []string{"./..."}, but: []string{"./bpf...", "./stripe..."}, why: "they are of use without the rest"},
	{in: []string{"./signals", "./congestion"}, not: slices.Concat(everything, []string{"os...", "net...", "syscall", "time"}), but: []string{"./signals"},
		why: "they compute: data and time are arguments"},
	{in: []string{"./congestion...", "./ackpath...", "./egress"}, not: []string{"./..."}, but: []string{"./signals", "./congestion...", "./ackpath...", "./egress..."},
		why: "they decide from signals and act on nothing"},
	{in: []string{"./congestion..."}, not: []string{"./ackpath...", "./egress..."}, why: "levers do not know each other"},
	{in: []string{"./ackpath..."}, not: []string{"./congestion...", "./egress..."}, why: "levers do not know each other"},
	{in: []string{"./egress..."}, not: []string{"./congestion...", "./ackpath..."}, why: "levers do not know each other"},
	{in: []string{"./..."}, not: []string{"github.com/osrg/gobgp/..."}, but: []string{"github.com/osrg/gobgp/v4/pkg/packet/bgp"},
		why: "its packet library is enough: its server keeps a table of its own, and brings gRPC"},
	{in: []string{"./egress/bgp"}, not: []string{"./..."}, but: []string{"./egress", "./signals"}, why: "it hears routes and knows nothing of what becomes of them"},
	{in: []string{"./egress/render"}, not: []string{"./...", "os...", "net", "syscall", "time"}, but: []string{"./egress"}, why: "it makes text of a configuration"},
	{in: []string{"./egress/check"}, not: []string{"./..."}, but: []string{"./egress", "./egress/route"}, why: "it looks at what others made"},
	{in: []string{"./stripe"}, not: []string{"*.*"}, but: []string{"github.com/vishvananda/netlink", "golang.org/x/sys/unix", "github.com/quic-go/quic-go", "golang.org/x/net/ipv4"}, why: "who embeds it takes on what it imports (the last one comes with quic-go)"},
	{in: []string{"./stripe/..."}, except: []string{"./stripe"}, not: []string{"*.*"}, but: []string{"golang.org/x/sys/unix", "github.com/fxamacker/cbor/v2"}, why: "they speak through a connection of stripe"},
	{in: []string{"./dashboard..."}, not: []string{"./daemon..."}, why: "they meet in messages"},
	{in: []string{"./daemon..."}, not: []string{"./dashboard..."}, why: "they meet in messages"},
}

func TestImports(t *testing.T) {
	imports := readImports(t)
	for _, pkg := range []string{"./lab/link", "./lab/experiment", "./congestion", "./internal/skips"} {
		if len(imports[pkg]) == 0 {
			t.Fatalf("%s imports nothing: the source is not read", pkg)
		}
	}
	for _, v := range violations(imports) {
		t.Error(v)
	}
}

// The checker itself, on imports that break each kind of rule and on imports that break none.
func TestViolations(t *testing.T) {
	for _, c := range []struct {
		pkg, imported string
		forbidden     bool
	}{
		{"./lab/link", "./lab/result", true},
		{"./lab/link", "time", false},
		{"./lab/link", "gonum.org/v1/gonum/stat", true},
		{"./lab/topo", "./lab/experiment", false},
		{"./lab/topo", "./lab/vm", true},
		{"./lab/emu", "golang.org/x/sys/unix", false},
		{"./lab/report", "golang.org/x/sys/unix", true},
		{"./cmd/plait", "./lab", false},
		{"./cmd/plait", "./lab/agent", false},
		{"./cmd/plait", "github.com/expr-lang/expr", true},
		{"./lab", "./daemon", true},
		{"./congestion", "./signals", false},
		{"./congestion", "./egress", true},
		{"./congestion", "time", true},
		{"./congestion", "embed", false},
		{"./signals", "net/netip", true},
		{"./signals", "./congestion", true},
		{"./egress/route", "github.com/vishvananda/netlink", false},
		{"./egress/bgp", "github.com/osrg/gobgp/v4/pkg/packet/bgp", false},
		{"./egress/bgp", "github.com/osrg/gobgp/v4/pkg/server", true},
		{"./egress/bgp", "./egress/route", true},
		{"./stripe", "./signals", true},
		{"./stripe", "golang.org/x/sys/unix", false},
		{"./stripe/cp", "./stripe", false},
		{"./stripe/cp", "golang.org/x/sys/unix", false},
		{"./stripe/pipe", "golang.org/x/sys/unix", true},
	} {
		got := violations(map[string][]string{c.pkg: {c.imported}})
		if (len(got) > 0) != c.forbidden {
			t.Errorf("%s imports %s: got %q, want forbidden: %v", c.pkg, c.imported, got, c.forbidden)
		}
	}
}

// Such a name says nothing about what is inside, and everything ends up there.
func TestPackageNames(t *testing.T) {
	for pkg := range readImports(t) {
		switch path.Base(pkg) {
		case "utils", "util", "common", "helpers", "types", "constants", "misc", "shared":
			t.Errorf("%s: name the package after what it does", pkg)
		}
	}
}

// violations lists the imports that a rule forbids, sorted.
func violations(imports map[string][]string) []string {
	var out []string
	for pkg, imported := range imports {
		for _, r := range rules {
			if !matches(r.in, pkg) || matches(r.except, pkg) {
				continue
			}
			for _, i := range imported {
				if matches(r.not, i) && !matches(r.but, i) {
					out = append(out, pkg+" imports "+i+": "+r.why)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// matches reports whether one of the patterns stands for the import path. *.* is any path with a host name in front.
func matches(patterns []string, importPath string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if p == "*.*" {
			host, _, _ := strings.Cut(importPath, "/")
			return host != "." && strings.Contains(host, ".")
		}
		prefix, any := strings.CutSuffix(p, "...")
		return p == importPath || any && (strings.HasPrefix(importPath, strings.TrimSuffix(prefix, "/")+"/") || importPath == prefix)
	})
}

// readImports returns what each package imports, tests not counted, with this module's packages written ./lab/link.
func readImports(t *testing.T) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		pkg := "./" + dir
		for _, spec := range f.Imports {
			importPath, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if inside, ok := strings.CutPrefix(importPath, module); ok {
				importPath = "." + inside
			}
			imports[pkg] = append(imports[pkg], importPath)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return imports
}

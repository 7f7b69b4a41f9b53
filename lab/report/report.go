// Package report shows result files to people: as one HTML page that needs nothing from elsewhere, with every plot also
// as SVG and CSV beside it, and as a short text for the terminal.
package report

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"plait.dev/plait/lab/result"
)

//go:embed report.html.tmpl report.css report.js
var assets embed.FS

// Options of a report.
type Options struct {
	// Title of the page. Default "plait lab report".
	Title string
}

// Write makes the page at path from one or more result files, and beside it a directory named like it with "_files" at
// the end, which holds the plots as SVG and the numbers as CSV. The same files give the same bytes.
func Write(path string, files []*result.File, opt Options) error {
	if opt.Title == "" {
		opt.Title = "plait lab report"
	}
	dir := strings.TrimSuffix(path, filepath.Ext(path)) + "_files"
	experiments := views(files, filepath.Base(dir))
	page, err := render(experiments, opt)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := result.Replace(path, page); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	for _, e := range experiments {
		if err := writeFiles(filepath.Dir(path), e); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return nil
}

// view is one experiment on the page.
type view struct {
	// ID is unique on the page: the name, with a number if it comes more than once.
	ID string
	*result.File
	Verdict  verdict
	Headline string
	Lead     lead
	Figures  []*figure
	Bounds   []*boundGroup
	Invalid  []invalidRun
	Paper    []paperRow
	// Dir holds the experiment's files, relative to the page.
	Dir string
	// Network is the topology, drawn for wide and for narrow windows.
	Network template.HTML
}

// views prepares the experiments, sorted by group. Colours of variants are handed out over all of them.
func views(files []*result.File, dir string) []*view {
	sorted := slices.Clone(files)
	slices.SortStableFunc(sorted, func(a, b *result.File) int {
		return cmp.Or(groupRank(a)-groupRank(b), strings.Compare(a.Experiment.Group, b.Experiment.Group))
	})
	variants := &colours{}
	taken := map[string]bool{}
	var all []*view
	for _, f := range sorted {
		s := newSource(f, variants)
		e := &view{File: f, ID: f.Experiment.Name, Verdict: newVerdict(f), Headline: headline(s), Lead: newLead(s),
			Bounds: boundGroups(s), Invalid: invalidRuns(s), Paper: paperRows(s)}
		for n := 2; taken[e.ID]; n++ { // another experiment may be called like this one with its number
			e.ID = fmt.Sprintf("%s-%d", f.Experiment.Name, n)
		}
		taken[e.ID] = true
		e.Dir = dir + "/" + e.ID
		e.Figures = figures(s)
		for i, fig := range e.Figures {
			fig.Base = fmt.Sprintf("%s/%d-%s", e.Dir, i+1, fig.Kind)
		}
		if t := f.Experiment.Topology; len(t.Nodes) > 0 {
			e.Network = template.HTML(drawTopology(t, false).inline("wide natural", "topology") + drawTopology(t, true).inline("narrow natural", "topology"))
		}
		all = append(all, e)
	}
	return all
}

// groupRank puts plait's own groups first, in the order in which one builds on the other.
func groupRank(f *result.File) int {
	order := []string{"stock", "egress", "congestion", "ackpath", "stripe", "tables"}
	if i := slices.Index(order, f.Experiment.Group); i >= 0 {
		return i
	}
	return len(order)
}

// writeFiles writes what the page links to.
func writeFiles(base string, e *view) error {
	if err := os.MkdirAll(filepath.Join(base, filepath.FromSlash(e.Dir)), 0o755); err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, fig := range e.Figures {
		files[fig.Base+".svg"], files[fig.Base+".csv"] = fig.SVG(), fig.CSV()
	}
	if t := e.Experiment.Topology; len(t.Nodes) > 0 {
		files[e.Dir+"/topology.svg"] = drawTopology(t, false).file(e.ID + ": topology")
	}
	var metrics, series, samples bytes.Buffer
	if err := result.MetricsCSV(&metrics, e.File); err != nil {
		return err
	}
	if err := result.SeriesCSV(&series, e.File); err != nil {
		return err
	}
	if err := result.SamplesCSV(&samples, e.File); err != nil {
		return err
	}
	files[e.Dir+"/metrics.csv"], files[e.Dir+"/series.csv"], files[e.Dir+"/samples.csv"] = metrics.Bytes(), series.Bytes(), samples.Bytes()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(base, filepath.FromSlash(name)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// section is one group of the overview.
type section struct {
	Name        string
	Experiments []*view
}

// page is what the template sees.
type page struct {
	Title       string
	Style       template.CSS
	Script      template.JS
	Sections    []section
	Experiments []*view
}

// Total sums up all verdicts.
func (p page) Total() verdict {
	var sum verdict
	incomplete := 0
	for _, e := range p.Experiments {
		sum.Hold += e.Verdict.Hold
		sum.Total += e.Verdict.Total
		sum.Cells += e.Verdict.Cells
		sum.InvalidCells += e.Verdict.InvalidCells
		incomplete += btoi(e.Incomplete != "")
	}
	if incomplete > 0 {
		sum.Incomplete = fmt.Sprintf("%d of %s incomplete", incomplete, plural(len(p.Experiments), "experiment"))
	}
	return sum
}

// href is the address of one of the files beside the page. The name of these is the user's: the template would take what is before a colon in it for a
// scheme, and leave a # or ? as it is.
func href(base, rest string) template.URL {
	return template.URL((&url.URL{Path: base + rest}).String())
}

func render(experiments []*view, opt Options) ([]byte, error) {
	text := func(name string) string {
		b, err := assets.ReadFile(name)
		if err != nil {
			panic(err) // embedded: cannot be missing
		}
		return string(b)
	}
	p := page{Title: opt.Title, Style: template.CSS(pageStyle() + text("report.css")), Script: template.JS(text("report.js")), Experiments: experiments}
	for _, e := range experiments {
		if n := len(p.Sections); n == 0 || p.Sections[n-1].Name != e.Experiment.Group {
			p.Sections = append(p.Sections, section{Name: e.Experiment.Group})
		}
		last := &p.Sections[len(p.Sections)-1]
		last.Experiments = append(last.Experiments, e)
	}
	t, err := template.New("report").Funcs(template.FuncMap{"plural": plural, "href": href}).Parse(text("report.html.tmpl"))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

package report

import (
	"bytes"
	"html"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plait.dev/plait/lab/result"
)

func writeSample(t *testing.T) (dir string, page []byte) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "report.html")
	if err := Write(path, []*result.File{exits(), bursts(), plain(), plain()}, Options{}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return dir, page
}

func TestReport(t *testing.T) {
	dir, page := writeSample(t)
	t.Run("fetches nothing and its links exist", func(t *testing.T) { checkLinks(t, dir, page) })
	t.Run("says what it must", func(t *testing.T) { checkSays(t, page) })
	t.Run("is the same every time", func(t *testing.T) { checkSame(t, dir) })
}

func checkLinks(t *testing.T, dir string, page []byte) {
	if at := regexp.MustCompile(`(?i)https?://|url\(|@import|<link|<img|<iframe| src=`).Find(page); at != nil {
		t.Errorf("the page refers to something outside: %q", at)
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllSubmatch(page, -1) {
		if ids[string(m[1])] {
			t.Errorf("id %s is used twice", m[1])
		}
		ids[string(m[1])] = true
	}
	links := regexp.MustCompile(` href="([^"]*)"`).FindAllSubmatch(page, -1)
	if len(links) < 20 {
		t.Errorf("%d links on the page", len(links))
	}
	for _, m := range links {
		if to, ok := strings.CutPrefix(string(m[1]), "#"); ok {
			if !ids[to] {
				t.Errorf("link to %s, which is not on the page", m[1])
			}
		} else if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(string(m[1])))); err != nil {
			t.Error(err)
		}
	}
	for _, svg := range regexp.MustCompile(`(?s)<svg class="plot.*?</svg>`).FindAll(page, -1) {
		wellFormed(t, svg)
	}
}

// TestLinksOfAnyName: the files beside the page are found whatever it is called.
func TestLinksOfAnyName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, `12:30 #1 100%? "a" & <b>.html`)
	if err := Write(path, []*result.File{exits()}, Options{}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(` href="([^#][^"]*)"`).FindAllSubmatch(page, -1)
	if len(links) < 5 {
		t.Errorf("%d links on the page", len(links))
	}
	for _, m := range links {
		to, err := url.Parse(html.UnescapeString(string(m[1])))
		if err != nil || to.Scheme != "" {
			t.Fatalf("%s: %v", m[1], err)
		}
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(to.Path))); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}

func checkSays(t *testing.T, page []byte) {
	for _, want := range []string{
		"<h2>Do two exits carry a download faster than the BGP best path?</h2>",
		"<h3>Invalid runs</h3>", `<td>vegas</td><td class="num">1</td><td class="bad prose">congestion control vegas is not registered</td>`,
		"7 of 8 bounds hold", "0 of 2 bounds hold, 1 of 3 runs invalid", "congestion control vegas is not registered",
		"mptcp.bulk.goodput_mbps &gt;= 0.6 * (a_mbps &#43; b_mbps)", "headers take 8 %", "SRv6-EPE suite, scenario 2",
		"plait lab run two-exits --seeds 3", "6.12.107", "2026-01-01T00:00:00Z", "9f86d081884c", "v0.1.0", "7.2.22",
		"Subflow 1: 2001:db8:1::10 -&gt; 2001:db8:c::2", "queues-2",
	} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func checkSame(t *testing.T, a string) {
	b, _ := writeSample(t)
	err := filepath.WalkDir(a, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(a, path)
		if err != nil {
			return err
		}
		first, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		second, err := os.ReadFile(filepath.Join(b, name))
		if err != nil {
			return err
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s differs between two reports of the same files", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestExperimentsKeepApart: the second of two of a name does not get the name of a third.
func TestExperimentsKeepApart(t *testing.T) {
	files := []*result.File{plain(), plain(), plain()}
	files[2].Experiment.Name += "-2"
	seen := map[string]bool{}
	for _, v := range views(files, "files") {
		seen[v.ID] = true
	}
	if len(seen) != len(files) {
		t.Errorf("three experiments have the directories %v", seen)
	}
}

// TestGroupsStandTogether: the overview has each group once, also those that are not plait's, which come last.
func TestGroupsStandTogether(t *testing.T) {
	var files []*result.File
	for _, group := range []string{"mine", "yours", "mine", "tables", "stock"} {
		f := plain()
		f.Experiment.Group = group
		files = append(files, f)
	}
	var groups []string
	for _, v := range views(files, "files") {
		groups = append(groups, v.Experiment.Group)
	}
	if want := []string{"stock", "tables", "mine", "mine", "yours"}; !slices.Equal(groups, want) {
		t.Errorf("%v, want %v", groups, want)
	}
}

func TestVariantsKeepTheirColour(t *testing.T) {
	all := views([]*result.File{plain(), exits(), bursts()}, "x")
	hues := map[string]string{}
	for _, e := range all {
		for _, v := range e.Lead.Variants {
			if before, ok := hues[v.Name]; ok && before != v.Hue {
				t.Errorf("%s has colour %s and %s", v.Name, before, v.Hue)
			}
			hues[v.Name] = v.Hue
		}
	}
	if hues["cubic"] == hues["bbr"] || hues["tcp"] == hues["mptcp"] {
		t.Errorf("variants side by side have the same colour: %v", hues)
	}
}

// TestReportIsReplacedWhole: on a full disk, or at the death of plait, an older report stays as it was.
func TestReportIsReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, []byte("an older report"), 0o600); err != nil {
		t.Fatal(err)
	}
	older, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer older.Close()
	if err := Write(path, []*result.File{plain()}, Options{}); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(older); err != nil || string(text) != "an older report" {
		t.Errorf("the older report was written over: %d bytes, %v", len(text), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestReportErrorNamesTheFile(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "a-file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Write(filepath.Join(blocked, "report.html"), []*result.File{plain()}, Options{})
	if err == nil || !strings.Contains(err.Error(), blocked) {
		t.Errorf("write into what is no directory: %v", err)
	}
}

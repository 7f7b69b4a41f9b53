package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const index = "docs/README.md"

// link is an inline Markdown link or image; its target is the first group.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestEveryDocIsInTheIndex(t *testing.T) {
	linked := map[string]bool{}
	for _, m := range link.FindAllStringSubmatch(prose(read(t, index)), -1) {
		file, _, _ := strings.Cut(m[1], "#")
		linked[filepath.Join("docs", file)] = true
	}
	for _, page := range markdown(t) {
		if strings.HasPrefix(page, "docs/") && page != index && !linked[page] {
			t.Errorf("%s: not in the index; add to %s: [...](%s)", page, index, strings.TrimPrefix(page, "docs/"))
		}
	}
}

func TestLinksResolve(t *testing.T) {
	for _, page := range markdown(t) {
		for _, m := range link.FindAllStringSubmatch(prose(read(t, page)), -1) {
			if why := broken(t, page, m[1]); why != "" {
				t.Errorf("%s: link to %s: %s", page, m[1], why)
			}
		}
	}
}

// A reader's machine has none of the directories of the machine this was written on.
func TestDocsNameNoBuildPath(t *testing.T) {
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	path := regexp.MustCompile(`(?m)(^|[\s"'(=` + "`" + `])` + regexp.QuoteMeta(here) + `($|[/\s"'.,;:)` + "`" + `])`)
	for _, page := range markdown(t) {
		if path.MatchString(read(t, page)) {
			t.Errorf("%s: names %s, where this copy of the source happens to lie", page, here)
		}
	}
}

// One question, one file, one page of the same name.
func TestExperimentsHavePages(t *testing.T) {
	experiments, pages := names(t, "lab/experiment/*.yaml"), names(t, "docs/lab/experiment/*.md")
	for _, e := range experiments {
		if !slices.Contains(pages, e) {
			t.Errorf("lab/experiment/%s.yaml: has no page docs/lab/experiment/%s.md", e, e)
		}
	}
	for _, p := range pages {
		if !slices.Contains(experiments, p) {
			t.Errorf("docs/lab/experiment/%s.md: describes no experiment: no lab/experiment/%s.yaml", p, p)
		}
	}
}

// broken says what is wrong with a link on a page, or nothing. Links to other sites are not followed.
func broken(t *testing.T, page, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	to := page
	if file != "" {
		to = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(filepath.Join(root, to)); err != nil {
		return "there is no " + to
	}
	if anchor != "" && !slices.Contains(anchors(read(t, to)), anchor) {
		return "no heading of " + to + " has this anchor"
	}
	return ""
}

// anchors are the headings of a page in the form links name them: lower case, dashes for spaces, no other punctuation.
func anchors(page string) []string {
	var out []string
	for line := range strings.Lines(prose(page)) {
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			keep := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.TrimSpace(heading), "")
			out = append(out, strings.ReplaceAll(strings.ToLower(keep), " ", "-"))
		}
	}
	return out
}

// prose is a page without its code blocks, where # is no heading and ]( no link.
func prose(page string) string {
	return regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$").ReplaceAllString(page, "")
}

// markdown lists the pages of the project, from its root.
func markdown(t *testing.T) []string {
	t.Helper()
	var pages []string
	err := fs.WalkDir(os.DirFS(root), ".", func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if strings.HasSuffix(file, ".md") {
			pages = append(pages, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// names are the base names of the files that match a pattern, without their ending.
func names(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), filepath.Ext(f))
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

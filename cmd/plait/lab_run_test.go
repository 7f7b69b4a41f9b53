package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutputsBeforeAnythingRuns: what would keep results from being written, or continued, is said before the first machine starts.
func TestOutputsBeforeAnythingRuns(t *testing.T) {
	dir := t.TempDir()
	results := filepath.Join(dir, "results")
	if err := os.Mkdir(results, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(results, "tcp-single.json"), []byte(`{"format": 1, "exp`), 0o644); err != nil {
		t.Fatal(err)
	}
	one, two := []string{"tcp-single"}, []string{"demo-exits", "tcp-single"}
	for _, test := range []struct {
		flags runFlags
		names []string
		want  string // none: it can run
	}{
		{runFlags{json: results}, one, "is a directory, and there is one experiment"},
		{runFlags{json: dir + "/new/"}, one, "is a directory, and there is one experiment"},
		{runFlags{report: results}, one, "give the file the report goes to"},
		{runFlags{json: results, resume: true}, two, "read result " + filepath.Join(results, "tcp-single.json")},
		{runFlags{resume: true}, one, "give both"},
		{runFlags{json: results}, two, ""},
		{runFlags{json: filepath.Join(dir, "new", "result.json"), resume: true}, one, ""},
	} {
		test.flags.captures = "."
		_, err := test.flags.prepare(test.names)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v, %v: %v, want %q", test.flags, test.names, err, test.want)
		}
	}
}

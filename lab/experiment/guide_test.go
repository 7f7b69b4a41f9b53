package experiment

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGuide checks that every example of the guide is an experiment file beside it, word for word, and loads.
func TestGuide(t *testing.T) {
	const guide = "../../docs/lab/guide"
	page, err := os.ReadFile(guide + ".md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlocks(string(page))
	files, err := filepath.Glob(guide + "/*.yaml")
	if err != nil || len(files) == 0 || len(blocks) != len(files) {
		t.Fatalf("%d examples in the guide, %d files: %v", len(blocks), len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(blocks, string(text)) {
				t.Error("the guide does not have this text")
			}
			if _, err := Load(file, Options{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// yamlBlocks are the texts of a page's YAML code blocks.
func yamlBlocks(page string) []string {
	var blocks []string
	for _, part := range strings.Split(page, "```yaml\n")[1:] {
		text, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, text)
	}
	return blocks
}

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The guide has every flag of cp, and what is easily taken for more than it is says so where it is set.
func TestGuideHasFlags(t *testing.T) {
	guide, err := os.ReadFile("../../docs/stripe/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	c := newCp()
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(string(guide), "`--"+f.Name) && !strings.Contains(string(guide), " --"+f.Name) && (f.Shorthand == "" || !strings.Contains(string(guide), "`-"+f.Shorthand)) {
			t.Errorf("--%s is not in the guide", f.Name)
		}
	})
	if usage := c.Flags().Lookup("links").Usage; !strings.Contains(usage, "a cap is for one run") {
		t.Errorf("--links: %s", usage)
	}
}

// JSON tells everything: -q beside it would do nothing.
func TestCpJSONIsNotQuiet(t *testing.T) {
	c := newCp()
	c.SetArgs([]string{"--json", "-q", "file", "host:"})
	c.SilenceErrors, c.SilenceUsage = true, true
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), "--json and --quiet exclude each other") {
		t.Errorf("got %v", err)
	}
}

package report

import (
	"strings"
	"testing"
	"unicode/utf8"

	"plait.dev/plait/lab/result"
)

func summary(t *testing.T, f *result.File, width int, colour bool) string {
	t.Helper()
	var out strings.Builder
	if err := Summary(&out, f, width, colour); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSummary(t *testing.T) {
	golden(t, "summary.txt", []byte(summary(t, exits(), 80, false)))
}

func TestSummaryKeepsToTheWidth(t *testing.T) {
	f := bursts()
	f.Cells = f.Cells[:14] // one point, fourteen variants
	f.Bounds = nil
	for _, width := range []int{40, 200} {
		for _, line := range strings.Split(summary(t, f, width, false), "\n")[2:] {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("%d columns where %d are free: %s", n, width, line)
			}
		}
	}
}

func TestSummaryOfALargeMatrixIsShort(t *testing.T) {
	text := summary(t, bursts(), 100, false)
	if n := strings.Count(text, "\n"); n > maxLines || !strings.Contains(text, "mean over 20 points") {
		t.Errorf("%d lines:\n%s", n, text)
	}
	f := bursts()
	f.Cells[0].Invalid = "no subflow"
	if text := summary(t, f, 100, false); !strings.Contains(text, "mean over those of 20 points that all variants have") {
		t.Errorf("an invalid run at one point:\n%s", text)
	}
}

func TestSummaryColoursOnlyIfTold(t *testing.T) {
	if text := summary(t, plain(), 80, false); strings.Contains(text, "\x1b") {
		t.Errorf("escape codes in %q", text)
	}
	if text := summary(t, plain(), 80, true); !strings.Contains(text, "\x1b[31m✗\x1b[0m cubic.ping.p50_ms <= 30") {
		t.Errorf("no red cross in %q", text)
	}
}

// TestReasonsApart: the same demand at other points, for another reason, keeps its own.
func TestReasonsApart(t *testing.T) {
	f := plain()
	again := f.Bounds[0]
	again.Because = "for another reason"
	f.Bounds = append(f.Bounds, again)
	var reasons []string
	for _, g := range boundGroups(newSource(f, &colours{})) {
		reasons = append(reasons, g.Because)
	}
	if n := len(f.Bounds); len(reasons) != n || reasons[n-1] != again.Because {
		t.Errorf("of %d bounds the report gives the reasons %q", n, reasons)
	}
}

// Skips reads the output of go test -json, prints what go test would have printed, and ends with the list of skipped tests.
// With CI=true a skip is a failure unless the file named as argument lists the test with a reason:
//
//	go test -json ./... | go run ./internal/skips .ci/allowed-skips
//
// A line of that file is: package, test, reason. Lines that start with # are comments.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// slowS is from how many seconds on a passed test gets a line of its own: the signs of life of a long run.
const slowS = 5

func main() {
	skipped, err := copyResults(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
	file, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
	unearned := report(os.Stdout, skipped, allowed(string(file)))
	if unearned > 0 && os.Getenv("CI") == "true" {
		fmt.Printf("FAIL: %d skipped tests are not in %s, and CI allows no other\n", unearned, os.Args[1])
		os.Exit(1)
	}
}

// event is one line of go test -json; see go doc test2json and go help buildjson.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// test names one test: package and function.
type test struct{ pkg, name string }

// skip is a test that did not run.
type skip struct {
	test
	reason string
}

// copyResults prints the events as go test would without -json, and returns the skipped tests in order.
func copyResults(in io.Reader, out io.Writer) ([]skip, error) {
	var skipped []skip
	output := map[test]string{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text()) // the go command's own words
			continue
		}
		t := test{e.Package, e.Test}
		switch {
		case e.Action == "build-output":
			fmt.Fprint(out, e.Output)
		case e.Action == "output" && e.Test == "":
			if e.Output != "PASS\n" && !strings.HasSuffix(e.Output, "[no test files]\n") {
				fmt.Fprint(out, e.Output)
			}
		case e.Action == "output" && strings.HasPrefix(e.Output, "=== "): // RUN, PAUSE, CONT, NAME
		case e.Action == "output":
			output[t] += e.Output
		case e.Action == "fail" && e.Test == "":
			for _, t := range unfinished(output, e.Package) {
				fmt.Fprint(out, output[t])
			}
		case e.Action == "fail":
			fmt.Fprint(out, output[t])
			delete(output, t)
		case e.Test == "":
		case e.Action == "pass":
			if e.Elapsed >= slowS {
				fmt.Fprintf(out, "    %s (%.0f s)\n", e.Test, e.Elapsed)
			}
			delete(output, t)
		case e.Action == "skip":
			skipped = append(skipped, skip{t, reason(output[t])})
			delete(output, t)
		}
	}
	return skipped, lines.Err()
}

// unfinished lists the tests of a package that have printed but not ended: those that exited or ran out of time.
func unfinished(output map[test]string, pkg string) []test {
	var tests []test
	for t := range output {
		if t.pkg == pkg {
			tests = append(tests, t)
		}
	}
	slices.SortFunc(tests, func(a, b test) int { return strings.Compare(a.name, b.name) })
	return tests
}

// reason takes the words given to Skip out of a test's output, where they follow file:line.
func reason(output string) string {
	for line := range strings.Lines(output) {
		if _, words, ok := strings.Cut(line, ".go:"); ok && strings.HasPrefix(line, " ") {
			_, words, _ = strings.Cut(words, ": ")
			return strings.TrimSpace(words)
		}
	}
	return "no reason given"
}

// allowed reads the list of skips that CI accepts. A line without a reason allows nothing.
func allowed(file string) map[test]bool {
	tests := map[test]bool{}
	for line := range strings.Lines(file) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] != "#" {
			tests[test{f[0], f[1]}] = true
		}
	}
	return tests
}

// report lists the skipped tests and returns how many of them are not allowed.
func report(out io.Writer, skipped []skip, allowed map[test]bool) (unearned int) {
	for _, s := range skipped {
		note := ""
		if allowed[s.test] {
			note = " (allowed)"
		} else {
			unearned++
		}
		fmt.Fprintf(out, "skipped%s: %s %s: %s\n", note, s.pkg, s.name, s.reason)
	}
	return unearned
}

package daemon

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// yamlErrorLine is how the YAML parser says where it stopped.
var yamlErrorLine = regexp.MustCompile(`line (\d+): (.*)`)

// countsFromZero is what it says with a line that it counts from 0; with all else it counts from 1.
var countsFromZero = regexp.MustCompile(`^did not find expected (<document start>|node content|'-' indicator|key|',' or)`)

// unknownAnchor is one of the things it says without a line.
var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)

// notYAML says where the parser stopped, and why.
func notYAML(file string, text []byte, err error) error {
	line, cause := 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlErrorLine.FindStringSubmatch(cause); m != nil {
		line, _ = strconv.Atoi(m[1])
		cause = m[2]
		if countsFromZero.MatchString(cause) {
			line++
		}
	} else {
		line += bytes.Count(text[:culprit(text, cause)], []byte("\n"))
	}
	if cause == "found character that cannot start any token" && tabIndents(text, line) {
		cause = "found a tab character that violates indentation"
	}
	return fmt.Errorf("%s:%d:1: %s: expected YAML", file, line, cause)
}

// tabIndents says whether a line, counted from 1, begins with blanks of which one is a tab.
func tabIndents(text []byte, line int) bool {
	lines := bytes.SplitN(text, []byte("\n"), line+1)
	if line > len(lines) {
		return false
	}
	l := lines[line-1]
	return bytes.ContainsRune(l[:len(l)-len(bytes.TrimLeft(l, " \t"))], '\t')
}

// culprit is the offset of what the parser complains about without a line: an alias, or a byte that is no text.
func culprit(text []byte, cause string) int {
	if m := unknownAnchor.FindStringSubmatch(cause); m != nil {
		return max(0, bytes.Index(text, []byte("*"+m[1])))
	}
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		if c == utf8.RuneError && size == 1 || unicode.IsControl(c) && !strings.ContainsRune("\t\n\r\u0085", c) {
			return i
		}
		i += size
	}
	return 0
}

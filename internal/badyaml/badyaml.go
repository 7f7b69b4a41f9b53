// Package badyaml finds where a text stops to be YAML: the parser names the beginning of a block of which a line is indented wrongly, counts some lines from 0, and
// names none for what no file may have in it.
package badyaml

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// yamlErrorLine is how the YAML parser says where it stopped.
var yamlErrorLine = regexp.MustCompile(`line (\d+): (.*)`)

// countsFromZero is what it says with a line that it counts from 0; with all else it counts from 1.
var countsFromZero = regexp.MustCompile(`^did not find expected (<document start>|node content|'-' indicator|key|',' or)`)

// blockEnds is what it says of a block in which a line is indented like none of it, with the line where the block begins, maybe hundreds before.
var blockEnds = regexp.MustCompile(`^did not find expected ('-' indicator|key)`)

// unknownAnchor is one of the things it says without a line.
var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)

// Where is the line and column of what makes the decoder of a text fail, each counted from 1, with the decoder's words for it. Column 0 is one that nobody knows.
func Where(text []byte, err error) (line, column int, cause string) {
	cause = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlErrorLine.FindStringSubmatch(cause); m != nil {
		line, _ = strconv.Atoi(m[1])
		cause = m[2]
		if countsFromZero.MatchString(cause) {
			line++
		}
		if blockEnds.MatchString(cause) {
			line = culpritLine(text, line, err)
		}
	} else if at := culprit(text, cause); at >= 0 {
		before := text[:at]
		line = 1 + bytes.Count(before, []byte("\n"))
		column = 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	} else {
		line = 1 // the only one that the parser does not number
	}
	if cause == "found character that cannot start any token" && tabIndents(text, line) {
		cause = "found a tab character that violates indentation"
	}
	return line, column, cause
}

// culpritLine is the first line, counted from 1, with which a text that is cut behind it gives the same error as all of it; not before first.
func culpritLine(text []byte, first int, err error) int {
	lines := bytes.SplitAfter(text, []byte("\n"))
	more := sort.Search(len(lines)-first, func(more int) bool {
		decoder := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:first+more], nil)))
		for {
			switch e := decoder.Decode(&yaml.Node{}); {
			case errors.Is(e, io.EOF):
				return false
			case e != nil:
				return e.Error() == err.Error()
			}
		}
	})
	return first + more
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

// culprit is the offset of what the parser complains about without a line: an alias, or what is no text; -1 for all else.
func culprit(text []byte, cause string) int {
	if m := unknownAnchor.FindStringSubmatch(cause); m != nil {
		return bytes.Index(text, []byte("*"+m[1]))
	}
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		if c == utf8.RuneError && size == 1 || c == '\ufffe' || c == '\uffff' || unicode.IsControl(c) && !strings.ContainsRune("\t\n\r\u0085", c) {
			return i
		}
		i += size
	}
	return -1
}

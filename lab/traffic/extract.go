package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// extract finds one number in a program's output: by a path into its JSON if the rule starts with a dot, as in
// .end.streams[0].sender.retransmits, else by a regular expression whose first group is the number.
func extract(output []byte, rule string) (v float64, err error) {
	if strings.HasPrefix(rule, ".") {
		v, err = extractJSON(output, rule)
	} else {
		v, err = extractMatch(output, rule)
	}
	if err == nil && !(math.Abs(v) <= result.Largest) { // such as the NaN that programs write of no samples
		err = fmt.Errorf("read the number of %s: %g is not a finite number of at most %g", rule, v, result.Largest)
	}
	return v, err
}

func extractMatch(output []byte, rule string) (float64, error) {
	re, err := regexp.Compile(rule)
	if err != nil {
		return 0, err
	}
	if re.NumSubexp() < 1 {
		return 0, fmt.Errorf("match %s: it has no group for the number", rule)
	}
	m := re.FindSubmatch(output)
	if m == nil {
		return 0, fmt.Errorf("match %s: not in the %d bytes of output, which end with %q", rule, len(output), end(output))
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if errors.Is(err, strconv.ErrSyntax) {
		err = fmt.Errorf("match %s: %q is not a number", rule, m[1])
	}
	return v, err
}

// end is as much of an output as an error needs to show what the program did instead.
func end(output []byte) []byte {
	return output[max(0, len(output)-100):]
}

func extractJSON(output []byte, path string) (float64, error) {
	var at any
	if err := json.Unmarshal(output, &at); err != nil {
		return 0, fmt.Errorf("parse output as JSON, which ends with %q: %w", end(output), err)
	}
	for rest := path; rest != ""; {
		m := experiment.PathStep.FindStringSubmatch(rest)
		if m == nil {
			return 0, fmt.Errorf("parse path %s: expected .key or .key[0] at %q", path, rest)
		}
		object, _ := at.(map[string]any)
		value, ok := object[m[1]]
		if !ok {
			return 0, fmt.Errorf("follow path %s: no key %s", path, m[1])
		}
		for index := range strings.SplitSeq(strings.Trim(m[2], "[]"), "][") {
			if index == "" {
				continue
			}
			list, _ := value.([]any)
			i, _ := strconv.Atoi(index)
			if i >= len(list) {
				return 0, fmt.Errorf("follow path %s: no element %d in %s", path, i, m[1])
			}
			value = list[i]
		}
		at, rest = value, rest[len(m[0]):]
	}
	number, ok := at.(float64)
	if !ok {
		return 0, errors.New("follow path " + path + ": not a number")
	}
	return number, nil
}

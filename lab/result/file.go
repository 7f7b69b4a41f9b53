package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
)

// Write stores f at path in the canonical form: the same f gives the same bytes. The file appears complete or not at all.
// A number that no result file may hold is an error that names its place, e.g. cells[3].metrics.bulk.goodput_mbps.
func Write(path string, f *File) error {
	text, err := Encode(f)
	if err != nil {
		return fmt.Errorf("write result %s: %w", path, err)
	}
	if err := Replace(path, text); err != nil {
		return fmt.Errorf("write result %s: %w", path, err)
	}
	return nil
}

// Read loads the result file at path. Fields it does not know are left out, so files of later versions of plait can be
// read as long as their format number is the same.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	f := new(File)
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("read result %s: %w; is it a result file of plait?", path, err)
	}
	switch {
	case f.Format == 0:
		return nil, fmt.Errorf("read result %s: it has no format number; is it a result file of plait?", path)
	case f.Format != Format:
		return nil, fmt.Errorf("read result %s: its format is %d and this plait reads format %d; use the plait that wrote it (%s)",
			path, f.Format, Format, f.Provenance.Plait)
	case f.Experiment.Name == "":
		return nil, fmt.Errorf("read result %s: it has no experiment.name; is it a result file of plait?", path)
	case !experimentName.MatchString(f.Experiment.Name):
		return nil, fmt.Errorf("read result %s: %q is no name of an experiment (lower-case letters, digits and dashes); is it a result file of plait?",
			path, f.Experiment.Name)
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("read result %s: %w", path, err)
	}
	return f, nil
}

// experimentName is what an experiment may be called: a report names directories after it, and the file may be anybody's.
var experimentName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// check reports a link without two ends, a series whose times do not fit its values, and a number that none may have.
func (f *File) check() error {
	if err := numbers(f); err != nil {
		return err
	}
	for _, l := range f.Experiment.Topology.Links {
		if len(l.Ends) < 2 {
			return fmt.Errorf("experiment.topology: link %s has %d ends", l.Name, len(l.Ends))
		}
	}
	for i := range f.Cells {
		for _, s := range f.Cells[i].Series {
			if s.StepS == 0 && len(s.TimesS) != len(s.Values) {
				return fmt.Errorf("cells[%d], series %s: %d times for %d values", i, s.Name, len(s.TimesS), len(s.Values))
			}
		}
	}
	return nil
}

// Encode returns the canonical JSON of f: two spaces of indent, the keys of maps sorted, arrays of plain values on one line.
func Encode(f *File) ([]byte, error) {
	if err := numbers(f); err != nil {
		return nil, err
	}
	whole := *f
	if whole.Cells == nil {
		whole.Cells = []Cell{}
	}
	if whole.Bounds == nil {
		whole.Bounds = []Bound{}
	}
	var compact bytes.Buffer
	encoder := json.NewEncoder(&compact)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(&whole); err != nil {
		return nil, err
	}
	return indent(bytes.TrimSpace(compact.Bytes())), nil
}

// Largest is the largest number of a result file: of more and larger ones the sum of squares would not be finite.
const Largest = 1e100

// numbers reports the first number that is not finite or too large.
func numbers(f *File) error {
	if place := noNumber(reflect.ValueOf(f), ""); place != "" {
		return fmt.Errorf("%s is not a finite number of at most %g", place, Largest)
	}
	return nil
}

// noNumber returns the place of the first number in v that is not finite or too large, or "".
func noNumber(v reflect.Value, place string) string {
	switch v.Kind() {
	case reflect.Float64:
		if !(math.Abs(v.Float()) <= Largest) { // nor is NaN
			return place
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return noNumber(v.Elem(), place)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if at := noNumber(v.Field(i), join(place, jsonName(v.Type().Field(i)))); at != "" {
				return at
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if at := noNumber(v.Index(i), fmt.Sprintf("%s[%d]", place, i)); at != "" {
				return at
			}
		}
	case reflect.Map:
		keys := v.MapKeys()
		sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
		for _, key := range keys {
			if at := noNumber(v.MapIndex(key), join(place, key.String())); at != "" {
				return at
			}
		}
	}
	return ""
}

func join(place, key string) string {
	if place == "" {
		return key
	}
	return place + "." + key
}

// jsonName returns the key of a field in the file.
func jsonName(field reflect.StructField) string {
	name, _, _ := bytes.Cut([]byte(field.Tag.Get("json")), []byte(","))
	return string(name)
}

// indent lays out compact JSON. It differs from json.Indent in that an array without objects or arrays inside stays on
// its line: a series of thousands of values is one line of the file.
func indent(compact []byte) []byte {
	var out bytes.Buffer
	depth := 0
	line := func() {
		out.WriteByte('\n')
		for range depth {
			out.WriteString("  ")
		}
	}
	for i := 0; i < len(compact); i++ {
		switch c := compact[i]; c {
		case '"':
			end := stringEnd(compact, i)
			out.Write(compact[i:end])
			i = end - 1
		case '[', '{':
			if end := flatEnd(compact, i); end > 0 {
				out.Write(compact[i:end])
				i = end - 1
				continue
			}
			out.WriteByte(c)
			depth++
			line()
		case ']', '}':
			depth--
			line()
			out.WriteByte(c)
		case ',':
			out.WriteByte(c)
			line()
		case ':':
			out.WriteString(": ")
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// flatEnd returns where the array or the empty object that starts at i ends, or 0 if it is to be broken into lines.
func flatEnd(compact []byte, i int) int {
	if compact[i] == '{' {
		if compact[i+1] == '}' {
			return i + 2
		}
		return 0
	}
	for j := i + 1; j < len(compact); j++ {
		switch compact[j] {
		case '"':
			j = stringEnd(compact, j) - 1
		case '[', '{':
			return 0
		case ']':
			return j + 1
		}
	}
	return 0
}

// stringEnd returns the place behind the JSON string that starts at i.
func stringEnd(compact []byte, i int) int {
	for j := i + 1; j < len(compact); j++ {
		switch compact[j] {
		case '\\':
			j++
		case '"':
			return j + 1
		}
	}
	return len(compact)
}

// Replaceable is an error if there is something at path that is no file: a device would be gone with a file in its place. Nor does "-" mean
// standard output, as who writes it expects: it has what is for people.
func Replaceable(path string) error {
	if path == "-" {
		return errors.New("- is not standard output here: give a file, ./- if that is to be its name")
	}
	info, err := os.Stat(path)
	switch {
	case err != nil || info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return fmt.Errorf("%s is a directory: give a file", path)
	}
	return fmt.Errorf("%s is a device or pipe, whose place the file would take: give a file", path)
}

// Replace puts text at path by writing beside it and renaming, so that a crash leaves the old file or the new one. A link
// stays, and what it leads to is replaced.
func Replace(path string, text []byte) (err error) {
	if err := Replaceable(path); err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			temp.Close()
			os.Remove(temp.Name())
		}
	}()
	if _, err := temp.Write(text); err != nil {
		return err
	}
	if err := temp.Chmod(fs.FileMode(0o644)); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

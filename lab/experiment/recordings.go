package experiment

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"plait.dev/plait/lab/link"
	"plait.dev/plait/lab/result"
)

// recording is one that a cell replays.
type recording struct {
	opportunitiesMs []uint32
	sha256          string // of the file as it is, packed or not: what sha256sum prints
}

// Recordings are those that the cells replay, in the order of their names.
func (x *Experiment) Recordings() []result.Recording {
	var all []result.Recording
	for _, name := range sortedKeys(x.load.recordings) {
		all = append(all, result.Recording{File: name, SHA256: x.load.recordings[name].sha256})
	}
	return all
}

// NoRecordings is what the directory of $traces holds beside recordings, which the matrix leaves out.
func (x *Experiment) NoRecordings() []string { return x.load.noRecordings }

// checkTraces says what is wrong with the directory of --traces, whether the experiment replays recordings or not: without it another file of a recording's name would do
// in silence.
func checkTraces(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case dir == "":
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrTraces, err)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is not a directory", ErrTraces, dir)
	}
	return nil
}

// expandTraces puts the recordings of --traces where a list of the matrix is the word $traces.
func (l *loader) expandTraces() error {
	matrix := l.tree.get("matrix")
	if matrix == nil {
		return nil
	}
	for _, axis := range matrix.fields {
		if axis.value.text != "$traces" {
			continue
		}
		if l.opt.Traces == "" {
			return ErrNoTraces
		}
		files, others, err := traceFiles(l.opt.Traces)
		if err != nil {
			return err
		}
		l.noRecordings = others
		list := &node{place: axis.value.place, kind: yaml.SequenceNode}
		for _, file := range files {
			list.items = append(list.items, &node{place: axis.value.place, kind: yaml.ScalarNode, tag: tagString, text: file})
		}
		l.tree = replace(l.tree, []string{"matrix", axis.key}, list)
	}
	return nil
}

// traceFiles are the base names of the recordings in a directory, sorted, and those of what else is there.
func traceFiles(dir string) (files, others []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrTraces, err)
	}
	for _, entry := range entries {
		switch filepath.Ext(strings.TrimSuffix(entry.Name(), ".gz")) {
		case ".up", ".down":
			files = append(files, entry.Name())
		default:
			others = append(others, entry.Name())
		}
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("%w: %s has no file *.up or *.down (or the same with .gz)", ErrTraces, dir)
	}
	return files, others, nil
}

// maxLines is how many lines all recordings of a cell may have: with 8 million the guest's memory is nearly full, with 10 million the
// kernel ends the packet emulator.
const maxLines = 8_000_000

// readTraces reads the recordings the spec names, each file once.
func (l *loader) readTraces(spec *Spec, tree *node) {
	lines := 0
	directions(spec, func(path string, d *Direction) {
		if d.Trace == nil {
			return
		}
		path = join(path, "trace.file")
		recorded, err := l.trace(d.Trace.File)
		opportunities := recorded.opportunitiesMs
		if err != nil {
			l.problems.add(tree.find(strings.Split(path, ".")), path, "%v", err)
		}
		d.Trace.OpportunitiesMs = opportunities
		if lines += len(opportunities); !strings.Contains(path, ".forward.") && !strings.Contains(path, ".backward.") {
			lines += len(opportunities) // it is for both
		}
	})
	if lines > maxLines {
		l.problems.add(tree.find([]string{"links"}), "links", "the recordings have %d lines in all, the guest has memory for %d; cut them", lines, maxLines)
	}
}

// trace is a recording, each read once.
func (l *loader) trace(name string) (recording, error) {
	if r, ok := l.recordings[name]; ok {
		return r, nil
	}
	content, file, err := l.readTrace(name)
	if err != nil {
		return recording{}, err
	}
	r := recording{sha256: fmt.Sprintf("%x", sha256.Sum256(content))}
	r.opportunitiesMs, err = link.ParseTrace(bytes.NewReader(content), file)
	if err == nil {
		l.recordings[name] = r
	}
	return r, err
}

// readTrace reads a recording: of the directory given with --traces if it is there, else a path relative to the experiment, else
// one of plait's own.
func (l *loader) readTrace(name string) (content []byte, file string, err error) {
	file = filepath.Join(l.opt.Traces, name)
	if _, err := os.Stat(file); l.opt.Traces == "" || filepath.IsAbs(name) || err != nil {
		file = l.relative(name)
	}
	if info, err := os.Stat(file); err != nil {
		if own, missing := embedded.ReadFile(path.Join("trace", name)); missing == nil {
			return own, name, nil
		}
		return nil, file, err
	} else if !info.Mode().IsRegular() {
		return nil, file, fmt.Errorf("%s is not a file", file)
	}
	content, err = os.ReadFile(file)
	return content, file, err
}

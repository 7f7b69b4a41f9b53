package result

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// sample is a small file with one of everything: two rates by two variants by two seeds.
func sample() *File {
	f := &File{
		Format: Format,
		Experiment: Experiment{Name: "pair", Group: "stock", Question: "Do two paths add up?", Source: "name: pair\n",
			Topology: Topology{
				Nodes: []Node{{Name: "client", Kind: "host"}, {Name: "r", Kind: "router", ASN: 64500}},
				Links: []Link{{Name: "a", Ends: []string{"client", "r"}, Forward: "30 Mbit/s, 10 ms"}},
			},
			Plots: []Plot{{Kind: "bars", Show: []string{"bulk.goodput_mbps"}, X: "rate_mbps"}}},
		Provenance: Provenance{Command: "plait lab run pair --seeds 2", Seeds: []int{1, 2}, Kernel: "6.12.107", Image: "ab12", Recordings: []Recording{{File: "lte.down", SHA256: "cd34"}},
			Plait: "v0.1.0", QEMU: "7.2.22", ClockBase: "2026-01-01T00:00:00Z"},
		Bounds: []Bound{{Expression: "mptcp.goodput_mbps >= 0.9 * 2 * rate_mbps", Because: "headers take 8 %",
			Params: map[string]any{"rate_mbps": 10}, Left: 19, Operator: ">=", Right: 18, OK: true}},
		Paper: []Published{{Metric: "mptcp.goodput_mbps", Source: "a paper", Published: 18, Ours: 19}},
	}
	for _, rate := range []int{10, 20} {
		for v, variant := range []string{"mptcp", "tcp"} {
			for seed := 1; seed <= 2; seed++ {
				f.Cells = append(f.Cells, Cell{
					Params:   map[string]any{"rate_mbps": rate, "queue": "deep"},
					Variant:  variant,
					Seed:     seed,
					VirtualS: 30,
					Metrics:  map[string]map[string]float64{"bulk": {"goodput_mbps": float64(rate*(2-v)) + 0.25*float64(seed), "retransmissions": 3}},
					Series:   []Series{{Name: "bulk.goodput_mbps", Unit: "Mbit/s", StartS: 0.1, StepS: 0.1, Values: []float64{1, 2.5}}},
					Samples:  []Samples{{Name: "bulk.latency_ms", Unit: "ms", Values: []float64{7, 8}}},
					Marks:    []Mark{{AtS: 5, Text: "a fails, <silently> & at once"}},
				})
			}
		}
	}
	return f
}

func TestWriteReadRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pair.json")
	if err := Write(path, sample()); err != nil {
		t.Fatal(err)
	}
	back, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Encode(back)
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, written) {
		t.Error("a file read and encoded again has other bytes")
	}
	if got, want := back.Cells[0].Marks, sample().Cells[0].Marks; !reflect.DeepEqual(got, want) {
		t.Errorf("marks = %v, want %v", got, want)
	}
	for _, line := range []string{
		"\n      \"variant\": \"mptcp\",\n", "\n          \"values\": [1,2.5]\n", "\"expression\": \"mptcp.goodput_mbps >= 0.9 * 2 * rate_mbps\"",
	} {
		if !strings.Contains(string(written), line) {
			t.Errorf("the file has no line %q:\n%s", line, written[:800])
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the result file lie %v (%v)", left, err)
	}
}

func TestWriteKeepsTheOldFileWhenANumberIsNotFinite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pair.json")
	if err := Write(path, sample()); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	for place, spoil := range map[string]func(*File){
		"cells[3].metrics.bulk.goodput_mbps": func(f *File) { f.Cells[3].Metrics["bulk"]["goodput_mbps"] = math.NaN() },
		"cells[0].series[0].values[1]":       func(f *File) { f.Cells[0].Series[0].Values[1] = math.Inf(1) },
		"cells[1].params.rate_mbps":          func(f *File) { f.Cells[1].Params["rate_mbps"] = math.Inf(-1) },
		"bounds[0].left":                     func(f *File) { f.Bounds[0].Left = math.NaN() },
		"cells[2].samples[0].values[0]":      func(f *File) { f.Cells[2].Samples[0].Values[0] = -1e101 },
	} {
		f := sample()
		spoil(f)
		err := Write(path, f)
		if err == nil || !strings.Contains(err.Error(), place+" is not a finite number of at most 1e+100") || !strings.Contains(err.Error(), path) {
			t.Errorf("write with %s spoilt: %v", place, err)
		}
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("a refused write changed the file")
	}
}

func TestWriteKeepsALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "first.json"), filepath.Join(dir, "latest.json")
	if err := errors.Join(Write(file, sample()), os.Symlink("first.json", link), os.Truncate(file, 0), Write(link, sample())); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); target != "first.json" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	if _, err := Read(file); err != nil {
		t.Error(err)
	}
}

func TestReadErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"format": 2, "provenance": {"plait": "v9"}}`: "its format is 2 and this plait reads format 1; use the plait that wrote it (v9)",
		`{"format": 1, "experiment": {"name": "x"}, "cells": [{}, {"series": [{"name": "bulk.cwnd_packets", "times_s": [1], "values": [10, 20]}]}]}`: "cells[1], series bulk.cwnd_packets: 1 times for 2 values",
		`{"format": 1, "experiment": {"name": "x", "topology": {"links": [{"name": "a", "ends": ["client"]}]}}}`:                                     "link a has 1 ends",
		`{"format": 1, "experiment": {"name": "../../x"}}`:                                                                                           `"../../x" is no name of an experiment`,
		`{"format": 1, "experiment": {"name": "x"}, "cells": [{"metrics": {"bulk": {"goodput_mbps": 1e308}}}]}`:                                      "cells[0].metrics.bulk.goodput_mbps is not a finite number of at most 1e+100",
		`{"cells": []}`: "no format number",
		`{`:             "is it a result file of plait?",
	} {
		path := filepath.Join(t.TempDir(), "r.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("read %s: %v, want it to name the file and %q", text, err, want)
		}
	}
	if _, err := Read("/nowhere/r.json"); err == nil || !strings.Contains(err.Error(), "/nowhere/r.json") {
		t.Errorf("read of a missing file: %v", err)
	}
}

// TestPageNamesEveryField keeps docs/lab/result.md complete: every key of the format stands in it as code.
func TestPageNamesEveryField(t *testing.T) {
	page, err := os.ReadFile("../../docs/lab/result.md")
	if err != nil {
		t.Fatal(err)
	}
	var check func(reflect.Type)
	check = func(of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for i := range of.NumField() {
			if key := jsonName(of.Field(i)); !bytes.Contains(page, []byte("`"+key+"`")) {
				t.Errorf("docs/lab/result.md does not say what %s.%s is", of.Name(), key)
			}
			check(of.Field(i).Type)
		}
	}
	check(reflect.TypeFor[File]())
}

func TestReadNeedsAnExperiment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty.json")
	if err := os.WriteFile(path, []byte(`{"format":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "experiment.name") {
		t.Errorf("read a file without a name: %v", err)
	}
}

// TestReplacesFilesOnly: as root, a file could take the place of a device.
func TestReplacesFilesOnly(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "a device or pipe", link: "a device or pipe", dir: "a directory"} {
		if err := Replace(path, nil); err == nil || !strings.HasPrefix(err.Error(), path+" is "+want) {
			t.Errorf("%s: %v, want that it is %s", path, err, want)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link to a pipe is now %v, %v", info.Mode(), err)
	}
}

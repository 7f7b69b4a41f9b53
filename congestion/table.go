package congestion

import (
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"

	"plait.dev/plait/signals"
)

// Each directory of table is one set, named like the system it was measured on. A new set needs no code.
//
//go:embed table
var embedded embed.FS

// defaultTables is the set whose choices are those the thesis reports (docs/congestion/rtcp.md).
const defaultTables = "thesis-2016-turned"

// tableSets lists the embedded sets.
func tableSets() []string {
	entries, err := fs.ReadDir(embedded, "table")
	if err != nil {
		panic(err) // it is embedded
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// tables are the latency characteristics of R-TCP (thesis, section 4.3): the three tables it keeps for each RTT. All three
// have the same RTTs and algorithms, the last two the same bottlenecks. Values are as in the files.
type tables struct {
	nonburst   *grid // (i) latency in s by non-burst loss rate
	bottleneck *grid // (ii) burst loss rate in percent by bottleneck in kbit/s
	burst      *grid // (iii) latency in s by bottleneck in kbit/s
}

// grid is one table for all its RTTs. All combinations of its axes have a cell.
type grid struct {
	rttsMs     []float64           // ascending
	entries    []float64           // ascending
	algorithms []signals.Algorithm // ascending
	cells      map[cell]float64
}

type cell struct {
	rttMs, entry float64
	algorithm    signals.Algorithm
}

func (g *grid) at(rttMs, entry float64, a signals.Algorithm) float64 {
	return g.cells[cell{rttMs, entry, a}]
}

// nearest is the one of the ascending entries next to x, which clamps an x out of range (thesis, sections 4.5 and 6.4.2).
// Of two as near, the smaller: the thesis does not say.
func nearest(entries []float64, x float64) float64 {
	best := entries[0]
	for _, e := range entries {
		if math.Abs(e-x) < math.Abs(best-x) {
			best = e
		}
	}
	return best
}

// column is a column of numbers: its heading, which names the unit, and the largest value that makes sense, which tells a
// mistaken unit.
type column struct {
	heading string
	max     float64
}

var (
	rttColumn        = column{"rtt_ms", 10_000}
	latencyColumn    = column{"latency_s", 3600}
	bottleneckColumn = column{"bottleneck_kbps", 1e9}
	nonburstColumn   = column{"nonburst_loss_rate", 1}
	burstColumn      = column{"burst_loss_rate_percent", 100}
)

func (c column) parse(text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0 && x <= c.max) {
		return 0, fmt.Errorf("%s: %q is not a number from 0 to %g", c.heading, text, c.max)
	}
	return x, nil
}

// parseGrid reads a table: lines of RTT, entry, algorithm and value below their headings, in any order; # begins a comment.
// Errors begin with the file's name and the line.
func parseGrid(name string, r io.Reader, entry, value column) (*grid, error) {
	c := csv.NewReader(r)
	c.Comment, c.FieldsPerRecord = '#', 4
	headings := []string{rttColumn.heading, entry.heading, "algorithm", value.heading}
	g := &grid{cells: map[cell]float64{}}
	line := 1
	for first := true; ; first = false {
		record, err := c.Read()
		if err == nil {
			line, _ = c.FieldPos(0)
		}
		var malformed *csv.ParseError
		switch {
		case err == io.EOF && !first:
			return g, g.complete(name, line, entry)
		case err == io.EOF || err == nil && first && !slices.Equal(record, headings):
			return nil, fmt.Errorf("%s:%d: the headings are not %q", name, line, headings)
		case errors.As(err, &malformed):
			return nil, fmt.Errorf("%s:%d: %w", name, malformed.Line, malformed.Err)
		case err != nil:
			return nil, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		if first {
			continue
		}
		if err := g.add(record, entry, value); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, err)
		}
	}
}

// add takes in one line.
func (g *grid) add(record []string, entry, value column) error {
	rttMs, err1 := rttColumn.parse(record[0])
	x, err2 := entry.parse(record[1])
	a, err3 := signals.ParseAlgorithm(record[2])
	y, err4 := value.parse(record[3])
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			return err
		}
	}
	at := cell{rttMs, x, a}
	if _, ok := g.cells[at]; ok {
		return fmt.Errorf("%s %g, %s %g, %s: a second value", rttColumn.heading, rttMs, entry.heading, x, a)
	}
	g.cells[at] = y
	g.rttsMs, g.entries, g.algorithms = insert(g.rttsMs, rttMs), insert(g.entries, x), insert(g.algorithms, a)
	return nil
}

// insert adds x to the ascending list if it is not there.
func insert[T float64 | signals.Algorithm](list []T, x T) []T {
	i, ok := slices.BinarySearch(list, x)
	if ok {
		return list
	}
	return slices.Insert(list, i, x)
}

// complete returns an error if a combination of the axes has no cell, or there is none at all.
func (g *grid) complete(name string, lastLine int, entry column) error {
	if len(g.cells) == 0 {
		return fmt.Errorf("%s:%d: the table is empty", name, lastLine)
	}
	for _, rttMs := range g.rttsMs {
		for _, x := range g.entries {
			for _, a := range g.algorithms {
				if _, ok := g.cells[cell{rttMs, x, a}]; !ok {
					return fmt.Errorf("%s:%d: until here no value for %s %g, %s %g, %s",
						name, lastLine, rttColumn.heading, rttMs, entry.heading, x, a)
				}
			}
		}
	}
	return nil
}

// openGrid parses a file.
func openGrid(dir fs.FS, name string, entry, value column) (*grid, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return parseGrid(name, f, entry, value)
}

// readTables reads the set that is in a directory.
func readTables(dir fs.FS) (*tables, error) {
	nonburst, err := openGrid(dir, "nonburst_latency.csv", nonburstColumn, latencyColumn)
	if err != nil {
		return nil, err
	}
	bottleneck, err := openGrid(dir, "bottleneck.csv", bottleneckColumn, burstColumn)
	if err != nil {
		return nil, err
	}
	burst, err := openGrid(dir, "burst_latency.csv", bottleneckColumn, latencyColumn)
	if err != nil {
		return nil, err
	}
	for _, g := range []*grid{nonburst, burst} {
		if !slices.Equal(g.rttsMs, bottleneck.rttsMs) || !slices.Equal(g.algorithms, bottleneck.algorithms) {
			return nil, errors.New("bottleneck.csv: its RTTs or algorithms are not those of the two other tables")
		}
	}
	if !slices.Equal(burst.entries, bottleneck.entries) {
		return nil, errors.New("bottleneck.csv: its bottlenecks are not those of burst_latency.csv")
	}
	return &tables{nonburst, bottleneck, burst}, nil
}

package report

import (
	"reflect"
	"testing"

	"plait.dev/plait/lab/result"
)

func TestMarksOfVariantsAreMerged(t *testing.T) {
	cells := func(at float64) []*result.Cell {
		return []*result.Cell{{Invalid: "no route", Marks: []result.Mark{{AtS: 1, Text: "of an invalid run"}}},
			{VirtualS: 100, Marks: []result.Mark{{AtS: at, Text: "route via b"}, {AtS: 5, Text: "a fails"}}}}
	}
	marks := addMarks(addMarks(addMarks(nil, cells(20)), cells(20.9)), cells(22))
	want := []markAt{{5, "a fails"}, {20, "route via b"}, {22, "route via b"}}
	if !reflect.DeepEqual(marks, want) {
		t.Errorf("marks = %v, want %v", marks, want)
	}
}

func TestMarksDoNotCoverEachOther(t *testing.T) {
	f := frame{x: scale{min: 0, max: 30}}
	for _, at := range []float64{10, 20, 21.4, 28} {
		f.marks = append(f.marks, markAt{at, "something happens"})
	}
	rows := f.layMarks(40, 340)
	x := f.x.on(40, 340)
	placed := 0
	for _, row := range rows {
		end := -1.0
		for _, m := range row {
			w := textWidth(m.text, 11)
			start := markStart(x.at(m.at), w, 340)
			if start < end {
				t.Errorf("the text at %v s starts at %v px, before %v px", m.at, start, end)
			}
			end = start + w
			placed++
		}
	}
	if placed != 4 {
		t.Errorf("%d of 4 texts placed", placed)
	}
	f.marks = []markAt{{5, "a fails"}, {15, "c fails"}, {21.4, "b takes over all of it"}} // the last is left of its line
	if rows := f.layMarks(40, 340); crossings(rows, x) != 0 {
		t.Errorf("a text is crossed by a line in %v, though none need be", rows)
	}
}

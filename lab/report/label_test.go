package report

import (
	"reflect"
	"testing"
)

func TestLabelsStandApart(t *testing.T) {
	lines := [][][2]float64{{{0, 50}, {300, 50}}, {{0, 54}, {300, 54}}, {{0, 120}, {300, 120}}}
	names := []string{"cubic", "bbr", "vegas"}
	spots, ok := placeLabels(newRaster(0, 0, 300, 160), names, lines)
	if !ok {
		t.Fatal("no room for three labels")
	}
	for i, a := range spots {
		for j, b := range spots[:i] {
			if overlap := a.x < b.x+textWidth(names[j], labelSize) && b.x < a.x+textWidth(names[i], labelSize) && a.y-b.y < 10 && b.y-a.y < 10; overlap {
				t.Errorf("%s at %v covers %s at %v", names[i], a, names[j], b)
			}
		}
	}
	if spots[0].y > 50 || spots[1].y < 54 {
		t.Errorf("of two close lines the upper is named at %v and the lower at %v", spots[0].y, spots[1].y)
	}
}

func TestNameOfAnAreaStandsInIt(t *testing.T) {
	high := [][2]float64{{0, 90}, {50, 90}, {100, 90}, {110, 40}, {200, 40}, {300, 40}}
	low := [][2]float64{{0, 100}, {50, 100}, {100, 100}, {110, 100}, {200, 100}, {300, 100}}
	spot, ok := placeInside(high, low, "subflow 1")
	if !ok || spot.x < 106 || spot.y != 74 { // the middle of 40 and 100 and 4 for half a letter
		t.Errorf("at %v, %v; want it right of 106 px at 74 px", spot, ok)
	}
	if _, ok := placeInside(high[:3], low[:3], "subflow 1"); ok {
		t.Error("a name of 14 pixels in an area of 10")
	}
}

func TestAlong(t *testing.T) {
	got := along([][2]float64{{0, 0}, {10, 0}, {10, 10}}, 5)
	if want := [][2]float64{{0, 0}, {5, 0}, {10, 0}, {10, 5}, {10, 10}}; !reflect.DeepEqual(got, want) {
		t.Errorf("along = %v, want %v", got, want)
	}
}

func TestLabelsGiveUpInACrowd(t *testing.T) {
	var lines [][][2]float64
	var names []string
	for i := range 14 {
		lines = append(lines, [][2]float64{{0, float64(10 + i)}, {300, float64(20 + i)}})
		names = append(names, "highspeed")
	}
	if _, ok := placeLabels(newRaster(0, 0, 300, 40), names, lines); ok {
		t.Error("fourteen labels on fourteen lines in 40 pixels")
	}
}

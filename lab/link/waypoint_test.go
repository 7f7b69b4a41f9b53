package link

import (
	"math"
	"testing"
	"time"
)

func TestWaypointsStayInTheCellAndWithinSpeed(t *testing.T) {
	const step = 20 * time.Millisecond
	config := WiMAXConfig{SpeedMaxKmh: 20, CellRadiusM: 300, Seed: 1}
	w := newWaypoints(config)
	lastX, lastY := w.at(0)
	turns, ended := 0, w.end
	var fastest, slowest = 0.0, math.Inf(1)
	for now := step; now < 10*time.Hour; now += step {
		x, y := w.at(now)
		if r := math.Hypot(x, y); r > config.CellRadiusM {
			t.Fatalf("%.3f m from the centre of a cell of %v m at %v", r, config.CellRadiusM, now)
		}
		kmh := math.Hypot(x-lastX, y-lastY) / step.Seconds() * 3.6
		if kmh > config.SpeedMaxKmh+1e-6 {
			t.Fatalf("%.6f km/h at %v", kmh, now)
		}
		if w.end == ended {
			fastest, slowest = max(fastest, kmh), min(slowest, kmh)
		} else {
			turns, ended = turns+1, w.end
		}
		lastX, lastY = x, y
	}
	if slowest < wimaxSlowestKmh-1e-6 || slowest > 2 || fastest < 19 {
		t.Errorf("speeds from %.3f to %.3f km/h, want most of 1 to 20", slowest, fastest)
	}
	// Two points in a disc are 128 / 45 pi radii apart on average and 1 in mean square; the inverse of a speed uniform in
	// [1, 20] is ln 20 / 19 on average and 1/20 in mean square. The number of turns is that of a renewal process.
	meanM, meanPerKmh := 128/(45*math.Pi)*config.CellRadiusM, math.Log(20)/19
	meanH := meanM / 1000 * meanPerKmh
	squareH := math.Pow(config.CellRadiusM/1000, 2) / 20
	want := 10 / meanH
	if sigma := math.Sqrt(want * (squareH/(meanH*meanH) - 1)); math.Abs(float64(turns)-want) > 3*sigma {
		t.Errorf("%d turns in 10 h, want %.0f within %.0f", turns, want, 3*sigma)
	}
}

func TestWaypointsDependOnTheSeed(t *testing.T) {
	config := WiMAXConfig{SpeedMaxKmh: 20, CellRadiusM: 1000, Seed: 1}
	a, b := newWaypoints(config), newWaypoints(config)
	config.Seed = 2
	other := newWaypoints(config)
	// However often one looks, the way is the same.
	for now := time.Second; now < time.Hour; now += time.Second {
		a.at(now)
	}
	ax, ay := a.at(time.Hour)
	bx, by := b.at(time.Hour)
	ox, oy := other.at(time.Hour)
	if ax != bx || ay != by || ax == ox || ay == oy {
		t.Errorf("after an hour at (%v, %v) and (%v, %v), with another seed at (%v, %v)", ax, ay, bx, by, ox, oy)
	}
}

package report

import "math"

// Labels stand at their curves, so that nobody has to look up a colour. Where they go is decided on a coarse raster of
// what is drawn: each label takes the free place nearest to its curve and furthest to the right.

const rasterPx = 4

// raster says which curve is drawn in each square: 0 none, -1 a label, else the curve's number + 1.
type raster struct {
	x, y       float64
	cols, rows int
	owner      []int
}

func newRaster(x, y, w, h float64) *raster {
	r := &raster{x: x, y: y, cols: int(w / rasterPx), rows: int(h / rasterPx)}
	r.owner = make([]int, r.cols*r.rows)
	return r
}

func (r *raster) set(x, y float64, owner int) {
	col, row := int((x-r.x)/rasterPx), int((y-r.y)/rasterPx)
	if col >= 0 && row >= 0 && col < r.cols && row < r.rows {
		r.owner[row*r.cols+col] = owner
	}
}

// trace enters a curve.
func (r *raster) trace(points [][2]float64, owner int) {
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		n := 1 + int(math.Hypot(b[0]-a[0], b[1]-a[1])/2)
		for j := 0; j <= n; j++ {
			share := float64(j) / float64(n)
			r.set(a[0]+share*(b[0]-a[0]), a[1]+share*(b[1]-a[1]), owner)
		}
	}
}

// cost counts the squares under a rectangle that belong to others (3 each) or to the owner (1 each); -1 if a label is
// there or the rectangle sticks out.
func (r *raster) cost(x, y, w, h float64, owner int) float64 {
	if x < r.x || y < r.y || x+w > r.x+float64(r.cols)*rasterPx || y+h > r.y+float64(r.rows)*rasterPx {
		return -1
	}
	sum := 0.0
	for row := int((y - r.y) / rasterPx); row <= int((y+h-r.y)/rasterPx) && row < r.rows; row++ {
		for col := int((x - r.x) / rasterPx); col <= int((x+w-r.x)/rasterPx) && col < r.cols; col++ {
			switch r.owner[row*r.cols+col] {
			case 0:
			case -1:
				return -1
			case owner:
				sum++
			default:
				sum += 3
			}
		}
	}
	return sum
}

// labelSpot is where a label's text starts (baseline).
type labelSpot struct{ x, y float64 }

const labelSize, labelHeight = 12.0, 14.0

// placeLabels finds a spot for the name of each curve; false if some name would hide too much of the others, or has no room.
func placeLabels(r *raster, names []string, curves [][][2]float64) ([]labelSpot, bool) {
	for i, points := range curves {
		r.trace(points, i+1)
	}
	spots := make([]labelSpot, len(names))
	for i, points := range curves {
		w := 1.1 * textWidth(names[i], labelSize) // bold
		best, found := math.Inf(1), false
		for _, p := range along(points, 60) {
			x, y := p[0], p[1]
			for _, at := range []labelSpot{{x - w/2, y - 20}, {x - w/2, y + 6}, {x + 7, y - 7}, {x - w - 7, y - 7}, {x - w/2, y - 32}, {x - w/2, y + 18}} {
				cost := r.cost(at.x-2, at.y, w+4, labelHeight, i+1)
				if cost < 0 {
					continue
				}
				cost += 2 * math.Abs(at.y+7-y) / 13
				cost += 3 * (1 - (at.x-r.x)/(float64(r.cols)*rasterPx))
				if cost < best {
					best, found, spots[i] = cost, true, labelSpot{at.x, at.y + 11}
				}
			}
		}
		if !found || best > 10+w/rasterPx {
			return nil, false
		}
		for y := spots[i].y - 11; y <= spots[i].y+3; y += rasterPx {
			for x := spots[i].x - 2; x <= spots[i].x+w+2; x += rasterPx {
				r.set(x, y, -1)
			}
		}
	}
	return spots, true
}

// placeInside finds the spot for the name of the area between two curves where it is thickest; false if nowhere thick enough.
func placeInside(high, low [][2]float64, name string) (labelSpot, bool) {
	w := 1.1 * textWidth(name, labelSize)
	best := labelHeight
	spot, found := labelSpot{}, false
	for _, start := range along(high, 60) {
		top, bottom := math.Inf(-1), math.Inf(1)
		covered := 0.0
		for i := range high {
			if x := high[i][0]; x >= start[0]-4 && x <= start[0]+w+4 {
				top, covered = math.Max(top, high[i][1]), x-start[0]
			}
		}
		for i := range low {
			if x := low[i][0]; x >= start[0]-4 && x <= start[0]+w+4 {
				bottom = math.Min(bottom, low[i][1])
			}
		}
		if covered >= w && bottom-top > best {
			best, spot, found = bottom-top, labelSpot{start[0], (top+bottom)/2 + 4}, true
		}
	}
	return spot, found
}

// along returns n points at equal distances on a polyline, both ends included.
func along(points [][2]float64, n int) [][2]float64 {
	if len(points) < 2 {
		return points
	}
	length := 0.0
	for i := 1; i < len(points); i++ {
		length += math.Hypot(points[i][0]-points[i-1][0], points[i][1]-points[i-1][1])
	}
	step := length / float64(n-1)
	spots := [][2]float64{points[0]}
	done := 0.0
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		segment := math.Hypot(b[0]-a[0], b[1]-a[1])
		for segment > 0 && len(spots) < n && step*float64(len(spots)) <= done+segment+1e-9 {
			share := (step*float64(len(spots)) - done) / segment
			spots = append(spots, [2]float64{a[0] + share*(b[0]-a[0]), a[1] + share*(b[1]-a[1])})
		}
		done += segment
	}
	return spots
}

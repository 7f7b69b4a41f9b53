package link

import (
	"math"
	"math/rand/v2"
	"time"
)

// waypoints is the random waypoint movement (Johnson, Maltz 1996) in a disc around the origin: from a random point straight
// to another one at a random speed, and so on without pause. Points are uniform in the disc, speeds in their range.
type waypoints struct {
	random             *rand.Rand
	radius             float64 // metres
	speedMin, speedMax float64 // metres per second

	fromX, fromY, toX, toY float64
	start, end             time.Duration // of the way between them
}

func newWaypoints(config WiMAXConfig) waypoints {
	const kmh = 1 / 3.6
	w := waypoints{
		random:   newRandom(config.Seed),
		radius:   config.CellRadiusM,
		speedMin: min(wimaxSlowestKmh, config.SpeedMaxKmh) * kmh,
		speedMax: config.SpeedMaxKmh * kmh,
	}
	w.toX, w.toY = w.point()
	return w
}

func (w *waypoints) point() (x, y float64) {
	r := w.radius * math.Sqrt(w.random.Float64())
	sin, cos := math.Sincos(2 * math.Pi * w.random.Float64())
	return r * cos, r * sin
}

// at is the place, in metres from the centre, at a time not before the previous one.
func (w *waypoints) at(now time.Duration) (x, y float64) {
	for w.end <= now {
		w.fromX, w.fromY, w.start = w.toX, w.toY, w.end
		w.toX, w.toY = w.point()
		speed := w.speedMin + w.random.Float64()*(w.speedMax-w.speedMin)
		w.end += time.Duration(math.Hypot(w.toX-w.fromX, w.toY-w.fromY) / speed * float64(time.Second))
	}
	done := float64(now-w.start) / float64(w.end-w.start)
	return w.fromX + done*(w.toX-w.fromX), w.fromY + done*(w.toY-w.fromY)
}

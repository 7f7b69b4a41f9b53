package link

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"
)

// Parameters that the thesis gives (Oguchi, doctoral thesis on R-TCP, SOKENDAI 2016, section 5.2).
const (
	wimaxSpeedMaxKmh = 20                    // 5.2.2
	wimaxStep        = 20 * time.Millisecond // 5.2.1.1: how often the modulation is chosen
	wimaxWorstBER    = 1e-4                  // 5.2.1.1: the modulation is chosen so that the bit error rate stays below
	wimaxCarrierMHz  = 2000                  // 5.2.3 gives 1500 to 2000: the end nearest to the 2.5 GHz of mobile WiMAX
	wimaxBaseHeightM = 30                    // 5.2.3 gives 30 to 200: the end nearest to the 32 m of the WiMAX Forum's evaluation
	wimaxMobileM     = 1.5                   // 5.2.3 gives 1 to 10: the height of the WiMAX Forum's evaluation
)

// Parameters on which it is silent. The WiMAX Forum's evaluation is "Mobile WiMAX, part I: a technical overview and
// performance evaluation", 2006.
const (
	wimaxTransmitDBm   = 43                    // WiMAX Forum: base station power
	wimaxBaseGainDBi   = 15                    // WiMAX Forum: base station antenna
	wimaxMobileGainDBi = -1                    // WiMAX Forum: terminal antenna
	wimaxNoiseFigureDB = 7                     // WiMAX Forum: terminal
	wimaxBandwidthHz   = 10e6                  // WiMAX Forum: profile with an FFT of 1024
	wimaxSubcarriers   = 720                   // 802.16e: data subcarriers of that profile, downlink PUSC
	wimaxSymbols       = 28                    // 802.16e: downlink symbols of a frame, its preamble aside, as So-In, Jain, Tamimi count them (JCNC 2010, 279807, table 4)
	wimaxFrame         = 5 * time.Millisecond  // 802.16e
	wimaxRetryDelay    = 20 * time.Millisecond // our choice: a retry timeout of 4 frames and 4 retries, as in JCNC 2012, 369803, table 4
	wimaxRetries       = 4                     // as above
	wimaxCellRadiusM   = 1400                  // WiMAX Forum: base stations 2.8 km apart
	wimaxNearestM      = 36                    // WiMAX Forum: least distance from the base station
	wimaxMetropolitan  = 3                     // dB; COST 231: metropolitan centres, since the thesis names Tokyo
	wimaxSlowestKmh    = 1                     // our choice: with a lower limit of 0 the mean speed tends to 0 (Yoon, Liu, Noble, INFOCOM 2003)
)

// modulation is a modulation and coding scheme.
type modulation struct {
	name       string
	minSNRdB   float64 // thesis, table 5-4
	frameBytes int     // what a frame carries: symbols x subcarriers x coded bits x coding rate / 8
}

const wimaxBytesPerBit = wimaxSymbols * wimaxSubcarriers / 8

var modulations = []modulation{
	{"BPSK 1/2", 7.5, wimaxBytesPerBit / 2},
	{"QPSK 1/2", 9.5, wimaxBytesPerBit},
	{"QPSK 3/4", 10, wimaxBytesPerBit * 3 / 2},
	{"16QAM 1/2", 11, wimaxBytesPerBit * 2},
	{"16QAM 3/4", 12, wimaxBytesPerBit * 3},
	{"64QAM 2/3", 20, wimaxBytesPerBit * 4},
	{"64QAM 3/4", 45, wimaxBytesPerBit * 9 / 2},
}

// modulationAt is the fastest modulation for a signal to noise ratio, or nil if there is none.
func modulationAt(snrDB float64) *modulation {
	for i := len(modulations) - 1; i >= 0; i-- {
		if snrDB >= modulations[i].minSNRdB {
			return &modulations[i]
		}
	}
	return nil
}

// bitErrorRate is that of Gray-coded modulation in white noise, Q(sqrt(c SNR)), with c such that it is wimaxWorstBER
// where the modulation begins to be used.
func (m *modulation) bitErrorRate(snrDB float64) float64 {
	worst := math.Sqrt2 * math.Erfcinv(2*wimaxWorstBER)
	return math.Erfc(worst*math.Pow(10, (snrDB-m.minSNRdB)/20)/math.Sqrt2) / 2
}

// pathLossDB is the COST231-Hata model (COST 231 final report, section 4.4.1) at a distance in km.
func pathLossDB(km float64) float64 {
	logMHz, logBase := math.Log10(wimaxCarrierMHz), math.Log10(wimaxBaseHeightM)
	mobile := (1.1*logMHz-0.7)*wimaxMobileM - (1.56*logMHz - 0.8)
	return 46.3 + 33.9*logMHz - 13.82*logBase - mobile + pathLossSlope()*math.Log10(km) + wimaxMetropolitan
}

// pathLossSlope is the loss in dB per factor 10 of the distance.
func pathLossSlope() float64 { return 44.9 - 6.55*math.Log10(wimaxBaseHeightM) }

// snrDB is the signal to noise ratio at a distance in metres. Below wimaxNearestM it does not grow.
func snrDB(m float64) float64 {
	const thermalDBmPerHz = -174
	noise := thermalDBmPerHz + 10*math.Log10(wimaxBandwidthHz) + wimaxNoiseFigureDB
	return wimaxTransmitDBm + wimaxBaseGainDBi + wimaxMobileGainDBi - pathLossDB(max(m, wimaxNearestM)/1000) - noise
}

// reachM is the distance in metres up to which there is a modulation.
func reachM() float64 {
	return 1000 * math.Pow(10, (snrDB(1000)-modulations[0].minSNRdB)/pathLossSlope())
}

// WiMAXConfig describes a mobile WiMAX link. Zero values are the defaults.
type WiMAXConfig struct {
	// SpeedMaxKmh is the upper limit of the speed, from 0.1 to 300, default 20; the lower one is 1, or the upper one if that is less. A slower
	// terminal could be on one way, or out of reach, for longer than a time.Duration holds.
	SpeedMaxKmh float64
	// CellRadiusM is the radius around the base station within which the terminal moves, default 1400.
	CellRadiusM float64
	// ARQRetries is how often a packet is sent again at most, default 4.
	ARQRetries int
	// Queue in front of the link.
	Queue QueueLimit
	// Seed of all that is random. The movement depends on it, the radius and the speed alone: two directions of a link
	// with the same seed are those of one terminal.
	Seed uint64
	// Direction, 0 or 1, tells the two directions of a link apart: each has bit errors of its own.
	Direction uint64
}

// WiMAX is the mobile WiMAX link of the R-TCP thesis, section 5.2: a terminal moves about a base station, the distance
// gives the signal to noise ratio, that the modulation, that the capacity and the bit errors. ARQ repairs packets at the
// price of delay and keeps them in order. docs/lab/link/wimax.md has formulas, parameters and their sources.
type WiMAX struct {
	chain
	queued *slotted
}

// NewWiMAX makes a link with the terminal at a random place.
func NewWiMAX(config WiMAXConfig) *WiMAX {
	config.SpeedMaxKmh = cmp.Or(config.SpeedMaxKmh, wimaxSpeedMaxKmh)
	config.CellRadiusM = cmp.Or(config.CellRadiusM, wimaxCellRadiusM)
	config.ARQRetries = cmp.Or(config.ARQRetries, wimaxRetries)
	frames := &wimaxFrames{radio: newWimaxRadio(config)}
	arq := &wimaxARQ{radio: newWimaxRadio(config), random: rand.New(rand.NewPCG(config.Seed, wimaxErrorStream+config.Direction)), retries: config.ARQRetries}
	queued := newSlotted(frames, config.Queue)
	return &WiMAX{chain{queued, arq}, queued}
}

// SetQueue replaces the limit of the queue. What is queued already stays, even beyond the new limit.
func (w *WiMAX) SetQueue(limit QueueLimit) { w.queued.SetQueue(limit) }

// wimaxRadio is the radio channel to the moving terminal. Its users have one each, since they look at different times.
type wimaxRadio struct {
	movement waypoints
	step     time.Duration // since when what follows holds
	distance float64
	snrDB    float64
	*modulation
}

func newWimaxRadio(config WiMAXConfig) *wimaxRadio {
	return &wimaxRadio{movement: newWaypoints(config), step: -1}
}

// at looks at the channel at a time not before the previous one.
func (r *wimaxRadio) at(now time.Duration) {
	if step := now - now%wimaxStep; step != r.step {
		r.step = step
		r.distance = math.Hypot(r.movement.at(step))
		r.snrDB = snrDB(r.distance)
		r.modulation = modulationAt(r.snrDB)
	}
}

// wimaxErrorStream is the stream of the first direction's random numbers; the movement has stream 0.
const wimaxErrorStream = 1

// wimaxFrames is the capacity: at the end of every frame, what the modulation carries.
type wimaxFrames struct {
	radio *wimaxRadio
	end   time.Duration
}

// next implements opportunities.
func (f *wimaxFrames) next() (time.Duration, int) {
	for {
		f.end += wimaxFrame
		f.radio.at(f.end)
		if f.radio.modulation != nil {
			return f.end, f.radio.frameBytes
		}
		// Out of reach: no need to look before the terminal can be back.
		away := (f.radio.distance - reachM()) / f.radio.movement.speedMax
		back := f.radio.step + time.Duration(away*float64(time.Second))
		f.end = max(f.end, back-back%wimaxFrame-wimaxFrame)
	}
}

// wimaxARQ loses packets to bit errors and sends them again. Retries take time but no capacity, as in the thesis
// (5.2.1.2).
type wimaxARQ struct {
	due
	radio   *wimaxRadio
	random  *rand.Rand
	retries int
	release time.Duration // no packet comes out before this time
}

// Send implements Model: a packet enters when its first transmission ends. Those behind it wait for it, and if it is
// lost, for its last retry to fail.
func (a *wimaxARQ) Send(now time.Duration, p Packet) {
	a.radio.at(now)
	bits := 8 * float64(max(p.Bytes-headerBytes, 0))
	failure := -math.Expm1(bits * math.Log1p(-a.radio.bitErrorRate(a.radio.snrDB)))
	retries := 0
	for retries <= a.retries && a.random.Float64() < failure {
		retries++
	}
	a.release = max(a.release, now+time.Duration(min(retries, a.retries))*wimaxRetryDelay)
	if retries > a.retries {
		a.dropped++
		return
	}
	a.add(a.release, p)
}

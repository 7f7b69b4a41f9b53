package link

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
)

// cellularFigures is the comparison of the profiles with their recordings.
type cellularFigures struct {
	svg    map[string][]byte
	tables string
}

// curveLags is the lags drawn, in bins of 100 ms.
var curveLags = []int{1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200}

func drawCellular(t *testing.T, recordings []recording) cellularFigures {
	t.Helper()
	rates := figure{title: "distribution of the rate in 100 ms", x: "Mbit/s", xLog: true, yMax: 1}
	memory := figure{title: "autocorrelation of the rate in 100 ms", x: "lag, s", xLog: true, yMin: -0.2, yMax: 1}
	outages := figure{title: "share of outages longer than", x: "ms", xLog: true, yLog: true, yMin: exceedanceMin, yMax: 1}
	var b strings.Builder
	fmt.Fprint(&b, "\n### Model and recordings\n\n")
	fmt.Fprintf(&b, "Each cell: recorded / model. The model is the mean of %d runs as long as the recording; in brackets the standard deviation of one run.\n", modelRuns)
	fmt.Fprint(&b, "D is the largest distance between the two distribution functions (Kolmogorov-Smirnov), the runs taken together.\n\n")
	var names []string
	var recorded []observation
	var models [][]observation
	for _, r := range recordings {
		o, runs := observe(r.series), runsLike(t, r.name, len(r.series))
		names, recorded, models = append(names, r.name), append(recorded, o), append(models, runs)
		rates.add(r.name, distribution(o.fine), distribution(pooled(runs, fineRates)))
		outages.add(r.name, exceedance(o.outagesMs), exceedance(pooled(runs, outagesMs)))
		memory.add(r.name, correlogram([]series{r.series}), correlogram(modelSerieses(t, r)))
	}
	comparisonTable(&b, names, recorded, models)
	return cellularFigures{tables: b.String(), svg: map[string][]byte{
		"cellular-rate.svg": rates.svg(), "cellular-acf.svg": memory.svg(), "cellular-outage.svg": outages.svg(),
	}}
}

func modelSerieses(t *testing.T, r recording) []series {
	t.Helper()
	var all []series
	for seed := range uint64(modelRuns) {
		process, err := newCellularProcess(CellularConfig{Profile: r.name, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, modelSeries(process, len(r.series)))
	}
	return all
}

func formatLag(s float64) string { return fmt.Sprintf("autocorrelation at %v s", s) }

func comparisonTable(b *strings.Builder, names []string, recorded []observation, models [][]observation) {
	fmt.Fprintf(b, "| | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---:|", len(names)))
	row := func(title, unit string, statistic func(o *observation) float64) {
		fmt.Fprintf(b, "| %s |", title)
		for i := range recorded {
			x := each(models[i], statistic)
			fmt.Fprintf(b, " "+unit+" / "+unit+" ("+unit+") |", statistic(&recorded[i]), mean(x), deviation(x))
		}
		fmt.Fprintln(b)
	}
	pair := func(title string, value func(recorded *observation, runs []observation) string) {
		fmt.Fprintf(b, "| %s |", title)
		for i := range recorded {
			fmt.Fprintf(b, " %s |", value(&recorded[i], models[i]))
		}
		fmt.Fprintln(b)
	}
	row("mean, Mbit/s", "%.2f", func(o *observation) float64 { return o.meanMbps })
	row("standard deviation in 100 ms, Mbit/s", "%.2f", func(o *observation) float64 { return deviation(o.fine) })
	row("standard deviation in 1 s, Mbit/s", "%.2f", func(o *observation) float64 { return deviation(o.coarse) })
	pair("D of the rate in 100 ms", func(o *observation, runs []observation) string {
		return fmt.Sprintf("%.3f", kolmogorov(o.fine, pooled(runs, fineRates)))
	})
	pair("D of the rate in 1 s", func(o *observation, runs []observation) string {
		return fmt.Sprintf("%.3f", kolmogorov(o.coarse, pooled(runs, coarseRates)))
	})
	for i, lag := range acfLagsS {
		row(formatLag(lag), "%.2f", func(o *observation) float64 { return o.acf[i] })
	}
	row("outages per minute", "%.1f", func(o *observation) float64 { return o.outagesPerMin })
	row("time in outages, %", "%.1f", func(o *observation) float64 { return 100 * o.outageShare })
	for _, q := range []float64{0.5, 0.9} {
		pair(fmt.Sprintf("outage length, %.0f %% quantile, ms", 100*q), func(o *observation, runs []observation) string {
			return fmt.Sprintf("%.0f / %.0f", quantile(o.outagesMs, q), quantile(pooled(runs, outagesMs), q))
		})
	}
	pair("D of the outage length (outages recorded)", func(o *observation, runs []observation) string {
		return fmt.Sprintf("%.3f (%d)", kolmogorov(o.outagesMs, pooled(runs, outagesMs)), len(o.outagesMs))
	})
}

// point is a point of a curve.
type point struct{ x, y float64 }

// distribution is the distribution function of sorted values at 60 quantiles, the smallest and largest ones left out.
func distribution(values []float64) []point {
	var curve []point
	for i := range 60 {
		q := (float64(i) + 0.5) / 60
		curve = append(curve, point{quantile(values, q), q})
	}
	return curve
}

// exceedanceMin is the least share drawn of outages.
const exceedanceMin = 0.01

// exceedance is the share of the sorted values from each on, at up to 60 of them.
func exceedance(values []float64) []point {
	var curve []point
	n := float64(len(values))
	for i := range 60 {
		// Equal ratios of the share show the tail.
		k := math.Round(n * math.Pow(exceedanceMin, float64(i)/59))
		if k >= 1 {
			curve = append(curve, point{values[len(values)-int(k)], k / n})
		}
	}
	return curve
}

func correlogram(runs []series) []point {
	var curve []point
	for _, lag := range curveLags {
		sum := 0.0
		for _, s := range runs {
			sum += autocorrelation(s.mbps(acfBinMs), lag)
		}
		curve = append(curve, point{float64(lag) * acfBinMs / 1000, sum / float64(len(runs))})
	}
	return curve
}

// figure is small multiples: per profile one panel with the curve of the recording and that of the model.
type figure struct {
	title, x   string
	xLog, yLog bool
	yMin, yMax float64
	panels     bytes.Buffer
	count      int
}

const panelWidth, panelHeight, panelColumns = 260, 170, 3

func (f *figure) add(name string, recorded, model []point) {
	left, top := panelWidth*(f.count%panelColumns), 30+panelHeight*(f.count/panelColumns)
	f.count++
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range append(append([]point{}, recorded...), model...) {
		if p.x > 0 {
			low, high = min(low, p.x), max(high, p.x)
		}
	}
	const width, height = panelWidth - 50, panelHeight - 50
	scale := func(v, from, to float64, log bool) float64 {
		if log {
			v, from, to = math.Log(max(v, from)), math.Log(from), math.Log(to)
		}
		return min(max((v-from)/(to-from), 0), 1)
	}
	x := func(v float64) float64 { return float64(left) + 40 + width*scale(v, low, high, f.xLog) }
	y := func(v float64) float64 { return float64(top) + 20 + height*(1-scale(v, f.yMin, f.yMax, f.yLog)) }
	w := &f.panels
	fmt.Fprintf(w, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#999\"/>\n", left+40, top+20, width, height)
	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\">%s</text>\n", left+40, top+14, name)
	for _, tick := range []float64{-0.2, 0, 0.01, 0.1, 0.5, 1} {
		if tick >= f.yMin && tick <= f.yMax && (f.yLog || tick != 0.01 && tick != 0.1) {
			fmt.Fprintf(w, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%v</text>\n", left+36, y(tick)+4, tick)
		}
	}
	for decade := math.Ceil(math.Log10(low)); decade <= math.Log10(high); decade++ {
		v := math.Pow(10, decade)
		fmt.Fprintf(w, "<path d=\"M%.1f %dv%d\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>\n", x(v), top+20, height, x(v), top+32+height, v)
	}
	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", left+40+width, top+44+height, f.x)
	for i, curve := range [][]point{recorded, model} {
		var path strings.Builder
		for _, p := range curve {
			fmt.Fprintf(&path, "%.1f,%.1f ", x(p.x), y(p.y))
		}
		fmt.Fprintf(w, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", strings.TrimSpace(path.String()), [...]string{"#1f77b4", "#d95f02"}[i])
	}
}

func (f *figure) svg() []byte {
	rows := (f.count + panelColumns - 1) / panelColumns
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n", panelWidth*panelColumns, 30+panelHeight*rows)
	fmt.Fprintf(&b, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"40\" y=\"18\" font-size=\"13\">%s: <tspan fill=\"#1f77b4\">recorded</tspan>, <tspan fill=\"#d95f02\">model</tspan></text>\n", f.title)
	b.Write(f.panels.Bytes())
	fmt.Fprint(&b, "</svg>\n")
	return b.Bytes()
}

package traffic

import (
	"math"
	"slices"
	"time"

	"plait.dev/plait/lab/result"
)

// round rounds to a number of decimal places.
func round(x float64, places int) float64 {
	scale := math.Pow10(places)
	return math.Round(x*scale) / scale
}

// ms is a duration in milliseconds, rounded to the microsecond.
func ms(d time.Duration) float64 { return round(float64(d)/1e6, 3) }

// mean of the values; they must not be empty.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// deviation is the sample standard deviation (divided by n-1) of two values or more.
func deviation(values []float64) float64 {
	m, sum := mean(values), 0.0
	for _, v := range values {
		sum += (v - m) * (v - m)
	}
	return math.Sqrt(sum / float64(len(values)-1))
}

// describe adds statistics of the values to metrics, each under prefix + its name: mean_ms, sd_ms, min_ms, pN_ms, max_ms.
// Without values it adds nothing, and of one no sd_ms: there is no number to give.
func describe(metrics map[string]float64, prefix string, values []float64, names ...string) {
	if len(values) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(values))
	for _, name := range names {
		if name != "sd_ms" || len(values) > 1 {
			metrics[prefix+name] = round(statistic(sorted, name), 3)
		}
	}
}

func statistic(sorted []float64, name string) float64 {
	switch name {
	case "mean_ms":
		return mean(sorted)
	case "sd_ms":
		return deviation(sorted)
	case "min_ms":
		return sorted[0]
	case "p50_ms":
		return result.Percentile(sorted, 50)
	case "p95_ms":
		return result.Percentile(sorted, 95)
	case "p99_ms":
		return result.Percentile(sorted, 99)
	}
	return sorted[len(sorted)-1]
}

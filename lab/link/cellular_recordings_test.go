package link

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tracesVariable names the environment variable with the directory of the recordings, in mahimahi format, named
// *.down[.gz] and *.up[.gz]. The published parameters are of six that come with mahimahi (traces/): ATT-LTE-driving-2016,
// TMobile-LTE-short and Verizon-LTE-short, each down and up.
const tracesVariable = "PLAIT_TRACES"

// recording is a recording by the name of its profile.
type recording struct {
	name string
	series
}

// readRecordings reads all recordings of the directory, or skips the test.
func readRecordings(t *testing.T) []recording {
	t.Helper()
	directory := os.Getenv(tracesVariable)
	if directory == "" {
		t.Skipf("set %s to a directory of cellular recordings in mahimahi format to compare the model with them", tracesVariable)
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var all []recording
	for _, entry := range entries {
		name := profileName(entry.Name())
		if !strings.HasSuffix(name, "-down") && !strings.HasSuffix(name, "-up") {
			continue
		}
		f, err := os.Open(filepath.Join(directory, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		times, err := ParseTrace(f, f.Name())
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, recording{name, recordedSeries(times)})
	}
	if len(all) == 0 {
		t.Fatalf("no file *.down, *.up, *.down.gz or *.up.gz in %s=%s", tracesVariable, directory)
	}
	return all
}

// profileName is the profile for a file: Verizon-LTE-short.down.gz is verizon-lte-down.
func profileName(file string) string {
	name := strings.TrimSuffix(strings.ToLower(file), ".gz")
	return strings.NewReplacer("-short", "", "-2016", "", ".", "-").Replace(name)
}

// modelRuns is how many runs of the model, each as long as the recording, a recording is compared with.
const modelRuns = 40

// runsLike observes runs of a profile that are as long as a recording.
func runsLike(t *testing.T, profile string, milliseconds int) []observation {
	t.Helper()
	runs := make([]observation, modelRuns)
	for seed := range runs {
		process, err := newCellularProcess(CellularConfig{Profile: profile, Seed: uint64(seed)})
		if err != nil {
			t.Fatal(err)
		}
		runs[seed] = observe(modelSeries(process, milliseconds))
	}
	return runs
}

// each is one statistic of all runs.
func each(runs []observation, statistic func(o *observation) float64) []float64 {
	var x []float64
	for i := range runs {
		x = append(x, statistic(&runs[i]))
	}
	return x
}

// pooled is all values of all runs, sorted.
func pooled(runs []observation, values func(o *observation) []float64) []float64 {
	var x []float64
	for i := range runs {
		x = append(x, values(&runs[i])...)
	}
	slices.Sort(x)
	return x
}

func fineRates(o *observation) []float64   { return o.fine }
func coarseRates(o *observation) []float64 { return o.coarse }
func outagesMs(o *observation) []float64   { return o.outagesMs }

// TestCellularAgainstRecordings compares the distributions. The bounds on the rates leave the recordings' own sampling
// error room: the rate in 1 s comes in 120 or 140 values, whose distance from their own distribution exceeds
// 1.63/sqrt(140) = 0.14 in 1 % of cases even if they are independent. The rate in 100 ms is what was fitted; each of the
// six recordings is at least 0.11 from the profiles of the others.
func TestCellularAgainstRecordings(t *testing.T) {
	for _, r := range readRecordings(t) {
		if !slices.Contains(CellularProfiles(), r.name) {
			t.Logf("%s: no profile of that name", r.name)
			continue
		}
		recorded, runs := observe(r.series), runsLike(t, r.name, len(r.series))
		if d := kolmogorov(recorded.fine, pooled(runs, fineRates)); d > 0.05 {
			t.Errorf("%s: rates in 100 ms: distance %.3f, want <= 0.05", r.name, d)
		}
		if d := kolmogorov(recorded.coarse, pooled(runs, coarseRates)); d > 0.14 {
			t.Errorf("%s: rates in 1 s: distance %.3f, want <= 0.14", r.name, d)
		}
		// The asymptotic distance of n independent values from their own distribution exceeds 1.63/sqrt(n) in 1 % of cases.
		n := float64(len(recorded.outagesMs))
		if d := kolmogorov(recorded.outagesMs, pooled(runs, outagesMs)); n > 0 && d*d*n > 1.63*1.63 {
			t.Errorf("%s: outage lengths: distance %.3f of %v outages, want <= 1.63/sqrt(n)", r.name, d, n)
		}
		checkTargets(t, r.name, targetsOf(r.name, &recorded), runs)
	}
}

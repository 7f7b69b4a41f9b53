package table

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plait.dev/plait/lab/result"
)

// results are files of both experiments at round trips of 100 and 200 ms: one cell for each candidate, or one for all.
func results() []*result.File {
	made := func(experiment string) *result.File {
		return &result.File{Experiment: result.Experiment{Name: experiment}, Provenance: result.Provenance{Kernel: "6.12.1"}}
	}
	loss, neck := made("rtcp-table-loss"), made("rtcp-table-bottleneck")
	for _, rttMs := range []float64{200, 100} {
		all := result.Cell{Params: map[string]any{"rtt_ms": rttMs, "rate_mbps": 2.2}, Variant: "run", Seed: 1, Metrics: map[string]map[string]float64{"yardstick": {}}}
		for i, name := range candidates {
			for seed := 1; seed <= 2; seed++ {
				loss.Cells = append(loss.Cells, result.Cell{Params: map[string]any{"rtt_ms": rttMs, "loss_percent": 0.1}, Variant: name, Seed: seed,
					Metrics: map[string]map[string]float64{"screen": {"mean_ms": rttMs + float64(i*10+seed)}}})
			}
			all.Metrics[name] = map[string]float64{"mean_ms": 2*rttMs + float64(i)}
			all.Metrics["yardstick"][name+"_p_b_percent"] = float64(i) / 8
		}
		neck.Cells = append(neck.Cells, all)
	}
	return []*result.File{loss, neck, made("tcp-single")}
}

// The mean over seeds, in the units of the files, in the order of round trips, entries and names.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "set")
	if err := Write(dir, results()); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{
		"nonburst_latency.csv": {"rtt_ms,nonburst_loss_rate,algorithm,latency_s", "100,0.001,bic,0.1015", "200,0.001,westwood,0.2815"},
		"bottleneck.csv":       {"rtt_ms,bottleneck_kbps,algorithm,burst_loss_rate_percent", "100,2200,bic,0", "200,2200,westwood,1"},
		"burst_latency.csv":    {"rtt_ms,bottleneck_kbps,algorithm,latency_s", "100,2200,bic,0.2", "200,2200,westwood,0.408"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(lines) != 2+2*9 || !strings.HasPrefix(lines[0], "# Linux 6.12.1, ") || lines[1] != want[0] || lines[2] != want[1] || lines[19] != want[2] {
			t.Errorf("%s: %q", file, lines)
		}
	}
}

func TestWriteMistakes(t *testing.T) {
	for _, c := range []struct {
		spoil func(loss, neck *result.File)
		want  string
	}{
		{func(loss, _ *result.File) { loss.Cells = loss.Cells[:34] },
			"make nonburst_latency.csv of rtcp-table-loss: there is no run of westwood with rtt_ms 100 and loss_percent 0.1; run that as well, or leave out all runs with this rtt_ms or this loss_percent"},
		{func(loss, _ *result.File) {
			loss.Cells[0] = result.Cell{Params: loss.Cells[0].Params, Variant: "bic", Seed: 1, Invalid: "no such congestion control"}
		},
			"make nonburst_latency.csv of rtcp-table-loss: the run with map[loss_percent:0.1 rtt_ms:200], bic, seed 1 has no mean_ms; no such congestion control"},
		{func(_, neck *result.File) { delete(neck.Cells[0].Metrics, "hybla") },
			"make burst_latency.csv of rtcp-table-bottleneck: the run with map[rate_mbps:2.2 rtt_ms:200], run, seed 1 has no mean_ms; run the experiment of this version of plait"},
		{func(_, neck *result.File) { neck.Cells = nil },
			"make bottleneck.csv: no result file is of rtcp-table-bottleneck; make one with `plait lab run rtcp-table-bottleneck --json FILE`"},
		{func(_, neck *result.File) {
			other := neck.Cells[0]
			other.Params = map[string]any{"rtt_ms": 200.0, "rate_mbps": 2.2, "queue_packets": 1000.0}
			neck.Cells = append(neck.Cells, other)
		},
			"make bottleneck.csv of rtcp-table-bottleneck: of bic there are runs with map[rate_mbps:2.2 rtt_ms:200] and with map[queue_packets:1000 rate_mbps:2.2 rtt_ms:200], whose mean says nothing; leave one of them out"},
		{func(_, neck *result.File) { neck.Incomplete = "1 of 2" },
			"make bottleneck.csv: a result file of rtcp-table-bottleneck is incomplete, it has 1 of 2 runs; finish it with `plait lab run rtcp-table-bottleneck --json FILE --resume`"},
		{func(_, neck *result.File) { neck.Provenance.Kernel = "6.1.2" },
			"make tables: the results are of kernel 6.12.1 and of kernel 6.1.2; a set is of one"},
	} {
		files := results()
		c.spoil(files[0], files[1])
		dir := filepath.Join(t.TempDir(), "set")
		if err := Write(dir, files); fmt.Sprint(err) != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: the directory was made (%v)", c.want, err)
		}
	}
}

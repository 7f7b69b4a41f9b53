package result

import (
	"io"
	"strings"
	"testing"
)

func TestCSV(t *testing.T) {
	f := sample()
	f.Cells = f.Cells[3:5]
	for name, test := range map[string]struct {
		write func(io.Writer, *File) error
		want  string
	}{
		"metrics": {MetricsCSV, "variant,seed,owner,metric,value\n" +
			"tcp,2,bulk,goodput_mbps,10.5\ntcp,2,bulk,retransmissions,3\n" +
			"mptcp,1,bulk,goodput_mbps,40.25\nmptcp,1,bulk,retransmissions,3\n"},
		"series": {SeriesCSV, "variant,seed,series,unit,time_s,value\n" +
			"tcp,2,bulk.goodput_mbps,Mbit/s,0.1,1\ntcp,2,bulk.goodput_mbps,Mbit/s,0.2,2.5\n" +
			"mptcp,1,bulk.goodput_mbps,Mbit/s,0.1,1\nmptcp,1,bulk.goodput_mbps,Mbit/s,0.2,2.5\n"},
		"samples": {SamplesCSV, "variant,seed,samples,unit,index,value\n" +
			"tcp,2,bulk.latency_ms,ms,0,7\ntcp,2,bulk.latency_ms,ms,1,8\n" +
			"mptcp,1,bulk.latency_ms,ms,0,7\nmptcp,1,bulk.latency_ms,ms,1,8\n"},
	} {
		var got strings.Builder
		if err := test.write(&got, f); err != nil {
			t.Fatal(err)
		}
		if got.String() != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, &got, test.want)
		}
	}
}

// TestCSVHasNoFormulas: a spreadsheet computes what begins with one of these, and a formula can call programs.
func TestCSVHasNoFormulas(t *testing.T) {
	got := strings.Join(Fields([]string{"=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1", "-1.5e-3", "+2", "a=1", ""}), ";")
	if want := "'=cmd|' /C calc'!A0;'+1+1;'-1+1;'@SUM(1);'\t=1;-1.5e-3;+2;a=1;"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f := sample()
	f.Cells = f.Cells[:1]
	f.Cells[0].Variant, f.Cells[0].Series[0].Name = "=1+1", "@bulk"
	for name, write := range map[string]func(io.Writer, *File) error{"metrics": MetricsCSV, "series": SeriesCSV, "samples": SamplesCSV} {
		var text strings.Builder
		if err := write(&text, f); err != nil || !strings.Contains(text.String(), "\n'=1+1,1,") || strings.Contains(text.String(), ",@") {
			t.Errorf("%s: %v:\n%s", name, err, &text)
		}
	}
}

func TestCSVNamesTheParametersAndLeavesOutInvalidCells(t *testing.T) {
	f := sample()
	for i := range f.Cells[1:] {
		f.Cells[i+1].Invalid = "no route"
	}
	var got strings.Builder
	if err := MetricsCSV(&got, f); err != nil {
		t.Fatal(err)
	}
	want := "rate_mbps,variant,seed,owner,metric,value\n10,mptcp,1,bulk,goodput_mbps,20.25\n10,mptcp,1,bulk,retransmissions,3\n"
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &got, want)
	}
}

package measure

import (
	"maps"
	"testing"
)

func TestParseSNMP(t *testing.T) {
	got := map[string]uint64{}
	if err := parseSNMP("Tcp: MaxConn OutSegs RetransSegs\nTcp: -1 1200 7\nTcpExt: TCPTimeouts\nTcpExt: 2\n", got); err != nil {
		t.Fatal(err)
	}
	if want := map[string]uint64{"Tcp.OutSegs": 1200, "Tcp.RetransSegs": 7, "TcpExt.TCPTimeouts": 2}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, bad := range []string{"Tcp: A B\nTcp: 1\n", "Tcp: A\nUdp: 1\n"} {
		if err := parseSNMP(bad, got); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// Every counter has to exist in the kernel at hand: a misspelt name must not wait for an experiment.
func TestCounterNames(t *testing.T) {
	c, err := openCounters([]string{""})
	if err != nil {
		t.Fatal(err)
	}
	out := &Outcome{Metrics: map[string]map[string]float64{}}
	if err := c.finish(0, out); err != nil {
		t.Fatal(err)
	}
	if len(out.Metrics[""]) != len(nodeCounters) {
		t.Errorf("%d metrics of %d", len(out.Metrics[""]), len(nodeCounters))
	}
}

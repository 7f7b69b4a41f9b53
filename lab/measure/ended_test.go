package measure

import (
	"fmt"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/experiment"
)

// TestEnds: what a connection delivers after its last sample counts, and so does one that no sample sees, whether its socket is there at the end or not.
func TestEnds(t *testing.T) {
	rung.Netns(t)
	sender, _, receiver := threeNodes(t)
	const port, size = 23581, 100_000
	serve(t, sender, port, size)
	cfg := Config{Every: time.Hour, Origin: time.Now(), Measure: experiment.Measure{Sockets: true}, Apps: []App{{Name: "short", FromNS: sender, Port: port, Foreign: true}}}
	r, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	check := func(least map[string]float64) {
		out, err := r.Stop()
		if err != nil {
			t.Fatal(err)
		}
		for name, bytes := range least {
			got, s := out.Metrics[name]["delivered_bytes"], find(t, out, name+".goodput_mbps")
			if got < bytes || got > 2*size+4 { // SYN and FIN are a byte each
				t.Errorf("%s: %v bytes delivered, want %v", name, got, bytes)
			}
			if added := sum(s.Values) * 1e6 / 8 * s.StepS; len(s.Values) != 1 || added < 0.999*got || added > 1.001*got {
				t.Errorf("%s: %+v adds up to %v bytes, want %v", name, s, added, got)
			}
		}
		if len(out.Series) != 3*2+1 {
			t.Errorf("%d series, want three of each connection, whose state nobody saw, and the sum: %+v", len(out.Series), out.Series)
		}
	}
	address := fmt.Sprintf("[2001:db8:a::1]:%d", port)
	receive(t, receiver, address, false, size, func() {})
	receive(t, receiver, address, false, size, func() {
		time.Sleep(200 * time.Millisecond) // the kernel tells of the first one's end a little later
		check(map[string]float64{"short": 1.5 * size, "short/1": size / 2, "short/2": size / 2})
	})
}

package traffic

import (
	"context"
	"testing"
	"time"

	"plait.dev/plait/lab/experiment"
)

// TestStopBeforeStart: what a busy guest starts after its stop has lasted no time, and not less than none.
func TestStopBeforeStart(t *testing.T) {
	r := &run{clock: Clock{Origin: time.Now().Add(-time.Second), Every: tick}, stop: at(500)}
	r.begin()
	if r.start != at(500) {
		t.Errorf("starts at %v, after its stop at %v", r.start, r.stop)
	}
	if silence := r.meter.outcome(r.end()).Metrics["longest_silence_ms"]; silence != 0 {
		t.Errorf("was silent for %g ms", silence)
	}
}

// TestStopBeforeServer: a download that ends before its server is ready has measured nothing, and is no failure.
func TestStopBeforeServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // where there is no such namespace, the server fails
	for _, server := range []string{"go", "nginx"} {
		r := &run{app: &experiment.App{Server: server}, ends: Ends{FromNS: "plait-test-no-such-namespace"}, clock: Clock{Origin: time.Now(), Every: tick}}
		out, err := download(ctx, r)
		if err != nil || out.Metrics["bytes"] != 0 {
			t.Errorf("%s: %+v, %v", server, out, err)
		}
		if _, err := download(t.Context(), r); err == nil {
			t.Errorf("%s: no error before the stop", server)
		}
	}
}

// TestBeginsWithItsServer: the time that is allowed from the beginning on, as for the subflows of MPTCP, does not run while an application waits
// for its server. One that ends before that has begun, so that it is seen to have lasted too short.
func TestBeginsWithItsServer(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	e := Ends{FromNS: "plait-test-no-such-namespace", ToNS: "plait-test-no-such-namespace"} // where no server gets ready
	a := &experiment.App{Type: "command", Protocol: "mptcp", ServerCommand: "true", ClientCommand: "true"}
	for ctx, want := range map[context.Context]int{t.Context(): 0, over: 1} {
		began := 0
		_, err := Run(ctx, a, e, Clock{Origin: time.Now(), Every: tick, Began: func() { began++ }})
		if began != want || (err == nil) != (ctx == over) {
			t.Errorf("began %d times, want %d (%v)", began, want, err)
		}
	}
}

package signals

import (
	"encoding/json"
	"testing"
)

// The keys are a file format: recorded samples must stay readable.
func TestSampleJSON(t *testing.T) {
	s := Sample{
		Cookie: 1, Path: 23, AtUs: 2, IntervalUs: 3, EveryUs: 24, SRTTUs: 4, MinRTTUs: 5, RateBps: 6, DispersionBps: 7, Delivered: 8, LostSingle: 9,
		LostBurst: 10, RTTAtLossUs: 11, RTTAtLossMinUs: 22, RTTAtLossMaxUs: 20, LossyRounds: 21, SpuriousRecoveries: 12, IdleRestarts: 13, Bursts: 14, BurstBytes: 15,
		BurstLatencyUs: 16, CwndSegments: 17, SsthreshSegments: 18, MSS: 19, Algorithm: Hybla, Bulk: true, Closed: true, Anew: true,
	}
	want := `{"cookie":1,"path":23,"at_us":2,"interval_us":3,"every_us":24,"srtt_us":4,"min_rtt_us":5,"rate_bps":6,"dispersion_bps":7,` +
		`"delivered_segments":8,"lost_single_segments":9,"lost_burst_segments":10,"rtt_at_loss_us":11,"rtt_at_loss_min_us":22,"rtt_at_loss_max_us":20,"lossy_rounds":21,` +
		`"spurious_recoveries":12,"idle_restarts":13,"bursts":14,"burst_bytes":15,"burst_latency_us":16,` +
		`"cwnd_segments":17,"ssthresh_segments":18,"mss_bytes":19,"algorithm":"hybla","bulk":true,"closed":true,"anew":true}`
	got, err := json.Marshal(s)
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	var back Sample
	if err := json.Unmarshal(got, &back); err != nil || back != s {
		t.Errorf("read back as %+v, %v", back, err)
	}
}

package daemon

import (
	"os"
	"testing"
)

// What an administrator has said of the pacing of all connections, and of the least bundle in which packets leave, holds as in the kernel.
func TestSysctlsHold(t *testing.T) {
	h := newHost(t)
	client := h.distant(nil)
	for name, value := range map[string]string{"tcp_pacing_ss_ratio": "500", "tcp_pacing_ca_ratio": "400", "tcp_min_tso_segs": "40"} {
		h.in(func() error { return os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0) })
	}
	h.asKernel(client, func(who string, c pair) bool {
		i := h.info(c.server)
		window := float64(i.Snd_cwnd) * float64(i.Snd_mss) * 1e6 / float64(i.Rtt) // per second
		percent, want := 100*float64(i.Pacing_rate)/window, 400.
		if i.Snd_cwnd < i.Snd_ssthresh/2 {
			want = 500
		}
		if percent < want*0.9 || percent > want*1.1 {
			t.Errorf("%s: paces at %.0f %% of a window per round trip, want %.0f %%", who, percent, want)
		}
		// What is on the way takes part of the peer's window, which could not hold the bundle beside it.
		h.acknowledged(c.server)
		const segments = 40
		before := h.counter("IpOutRequests")
		h.must(send(c.server, 0, segments*int(i.Snd_mss)))
		h.must(receive(c.client, 0, segments*int(i.Snd_mss)))
		if n := h.counter("IpOutRequests") - before; n != 1 {
			t.Errorf("%s: %d segments leave in %d bundles, want 1", who, segments, n)
		}
		return true
	})
}

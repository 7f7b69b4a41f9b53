package egress

import (
	"math"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// Rates are those of the last seconds, totals those since the first look; what was there at the first look does not count.
func TestTraffic(t *testing.T) {
	traffic := NewTraffic[int]()
	at, client := time.Unix(100, 0), netip.MustParseAddr("192.0.2.1")
	counts := map[int]FlowCount{1: {"a", false, client, 1e9, 1e6, 5000, 40_000, false}}
	traffic.Look(counts, at)
	if x := traffic.Exits()["a"]; x != (ExitTraffic{}) {
		t.Errorf("after the first look: %+v", x)
	}
	for second := 1; second <= 100; second++ { // 8 Mbit/s and 1 % loss through a, twice as much and no loss through b
		now := map[int]FlowCount{
			1: {"a", false, client, 1e9 + uint64(second)*1e6, 1e6 + uint32(second)*1000, 5000 + uint32(second)*10, 40_000, false},
			2: {"b", true, client, uint64(second) * 2e6, uint32(second) * 2000, 0, 20_000, true},
		}
		traffic.Look(now, at.Add(time.Duration(second)*time.Second))
	}
	did, passed := traffic.Did()
	if want := (FlowCount{"b", true, client, 2e6, 2000, 0, 20_000, true}); len(did) != 2 || did[2] != want || passed != time.Second {
		t.Errorf("in the last %v: %+v, want %+v of flow 2", passed, did, want)
	}
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.005*want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if loads := traffic.Loads(); len(loads) != 2 || loads[0].Waits != (loads[0].Exit == "b") || loads[1].Waits != (loads[1].Exit == "b") {
		t.Errorf("data waits for b alone: %+v", loads)
	}
	a, b := traffic.Exits()["a"], traffic.Exits()["b"]
	near("goodput of a", a.GoodputBps, 8e6)
	near("goodput of b", b.GoodputBps, 16e6)
	near("loss of a", a.LossPercent, 1)
	near("round trip of a", a.RTTMs, 40)
	near("round trip of b", b.RTTMs, 20)
	near("round trip of the client by b", traffic.RTTUs("b", client), 20_000)
	near("share of b, not the best path", traffic.MovedPercent(), 200./3)
	if a.AckedBytes != 100e6 || a.SentSegments != 100_000 || a.Resent != 1000 || a.Flows != 1 || b.AckedBytes != 200e6 || b.LossPercent != 0 {
		t.Errorf("totals: %+v %+v", a, b)
	}
	// A flow with the same addresses and ports as one before counts from its beginning; without traffic, rates fade.
	traffic.Look(map[int]FlowCount{1: {"a", false, client, 500, 2, 0, 40_000, false}}, at.Add(130*time.Second))
	a, b = traffic.Exits()["a"], traffic.Exits()["b"]
	if a.AckedBytes != 100e6+500 || b.Flows != 0 {
		t.Errorf("%+v %+v", a, b)
	}
	if b.GoodputBps > 8e6 || b.GoodputBps == 0 {
		t.Errorf("half a minute after the end: %v bit/s", b.GoodputBps)
	}
}

// The end of a connection (FIN) that a client is not there to hear is sent again, too, and is no segment that was sent with data: it is no loss, and no segment sent before becomes one.
func TestRepeatedEnd(t *testing.T) {
	traffic := NewTraffic[int]()
	at, client := time.Unix(100, 0), netip.MustParseAddr("192.0.2.1")
	traffic.Look(map[int]FlowCount{}, at)
	for resent := range uint32(9) {
		traffic.Look(map[int]FlowCount{1: {Exit: "a", Client: client, AckedBytes: 1000, SentSegments: 3, Resent: resent, SRTTUs: 1000}}, at.Add(time.Duration(1+resent)*time.Second))
		if x := traffic.Exits()["a"]; x.SentSegments != 3 || x.Resent != 0 || x.LossPercent != 0 {
			t.Errorf("after %d FINs: %+v, want 3 segments and no loss", resent, x)
		}
	}
}

// The kernel's counts of segments have 32 bits, and begin again after some 6 TB: that is no new flow, whose bytes would all be of the last second.
func TestSinceWraps(t *testing.T) {
	before := FlowCount{AckedBytes: 6e12, SentSegments: math.MaxUint32 - 4, Resent: math.MaxUint32}
	if got, want := (FlowCount{AckedBytes: 6e12 + 14_480, SentSegments: 5, Resent: 1}).Since(before), (FlowCount{AckedBytes: 14_480, SentSegments: 10, Resent: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, anew := range []FlowCount{{AckedBytes: 1, SentSegments: 10}, {AckedBytes: 7e12, SentSegments: 1 << 30}} { // of the second nobody can tell but by its segments
		if got := anew.Since(FlowCount{AckedBytes: 6e12, SentSegments: 1<<30 + 1}); got != anew {
			t.Errorf("a flow with the addresses of one before did %+v, want %+v", got, anew)
		}
	}
}

// The round-trip time of a client's flows through an exit, and the shortest there was.
func TestLeastRTT(t *testing.T) {
	traffic := NewTraffic[int]()
	at, client := time.Unix(100, 0), netip.MustParseAddr("192.0.2.1")
	traffic.Look(map[int]FlowCount{}, at)
	for i, c := range [][2]uint32{{25_000, 25_000}, {20_000, 20_000}, {30_000, 20_000}} {
		traffic.Look(map[int]FlowCount{1: {Exit: "a", Client: client, AckedBytes: uint64(i+1) * 1000, SRTTUs: c[0]}}, at.Add(time.Duration(i+1)*time.Second))
		if loads := traffic.Loads(); len(loads) != 1 || loads[0].RTTUs != float64(c[0]) || loads[0].LeastRTTUs != float64(c[1]) {
			t.Errorf("after %d us: %+v, want the least %d us", c[0], loads, c[1])
		}
		if mbps, loss := traffic.Way("a", client); i > 0 && math.Abs(mbps-0.008) > 1e-9 || loss != 0 {
			t.Errorf("%g Mbit/s, %g %% lost: want the 1000 bytes of the last second", mbps, loss)
		}
	}
}

// Ways are remembered as long as there is room; those not used for longest go first, and one in use stays, with the shortest round-trip time it had.
func TestWaysAreBounded(t *testing.T) {
	rung.Long(t)
	traffic, at := NewTraffic[int](), time.Unix(100, 0)
	client := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	const looks, each = 5, youngWays / 2
	for look := range looks {
		flows := map[int]FlowCount{0: {Exit: "a", Client: client(0), AckedBytes: uint64(look), SRTTUs: uint32(20_000 + 1000*look)}}
		for i := 1 + look*each; i <= (look+1)*each; i++ {
			flows[i] = FlowCount{Exit: "a", Client: client(i), SRTTUs: 20_000}
		}
		traffic.Look(flows, at.Add(time.Duration(look)*time.Second))
	}
	if n := len(traffic.ways.young) + len(traffic.ways.old); n > 2*youngWays || n < youngWays {
		t.Errorf("%d ways are remembered, want at most %d and at least half of them", n, 2*youngWays)
	}
	for i, want := range map[int]float64{0: 24_000, 1: 0, looks * each: 20_000, (looks-1)*each + 1: 20_000} {
		if got := traffic.RTTUs("a", client(i)); got != want {
			t.Errorf("client %d: %v us, want %v", i, got, want)
		}
	}
	if l := traffic.Loads()[traffic.index[wayTo{"a", client(0)}]]; l.LeastRTTUs != 20_000 {
		t.Errorf("of a way in use the shortest round-trip time is %v us, want 20000", l.LeastRTTUs)
	}
	for look := range 3 { // nobody uses them
		traffic.Look(map[int]FlowCount{}, at.Add(time.Duration(look+1)*waysFor))
	}
	if n := len(traffic.ways.young) + len(traffic.ways.old); n != 0 {
		t.Errorf("%d ways are remembered, want none", n)
	}
}

// What a hundred thousand ways take: all that is remembered of a client's flows by an exit.
func BenchmarkWaysMemory(b *testing.B) {
	const many = 2 * youngWays
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		w := newWays()
		for i := range many {
			w.put([]WayLoad{{Exit: "a", Client: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}}, time.Unix(100, 0))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
		b.ReportMetric(float64(len(w.young)+len(w.old)), "ways")
		runtime.KeepAlive(&w)
	}
}

// At the first look no time has passed since another one.
func TestFirstLook(t *testing.T) {
	traffic := NewTraffic[int]()
	traffic.Look(map[int]FlowCount{1: {Exit: "a", AckedBytes: 1000, SentSegments: 1, SRTTUs: 1000}}, time.Unix(1000, 0))
	if did, in := traffic.Did(); len(did) > 0 || in != 0 {
		t.Errorf("%d flows did something in %v, want none in no time", len(did), in)
	}
}

package measure

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tcpInfiniteSsthresh is the slow start threshold of a connection that has not had one yet (include/net/tcp.h).
const tcpInfiniteSsthresh = 0x7fffffff

// sockets follows the applications' TCP sockets at the sender by inet_diag: all of them with Measure.Sockets, else only
// those of MPTCP applications, to count subflows.
//
// The kernel walks its whole hash table of sockets for each dump; the guest keeps that table small (thash_entries).
type sockets struct {
	cfg   Config
	dumps []*dump

	mu    sync.Mutex         // sample and subflows share the netlink sockets and counts
	flows map[uint64]*flow   // by socket cookie
	order []*flow            // by first appearance
	count map[connection]int // subflows in the current dump; 0 of connections that fell back to TCP
	most  []int              // per application; -1 if no connection was seen
}

// dump is one sender's namespace.
type dump struct {
	conn     *conn
	ended    *conn // hears of sockets that are no more; nil if they are not followed
	apps     []int // of cfg.Apps
	requests [2][]byte
}

// connection is an MPTCP connection of an application; token is unique in the namespace.
type connection struct {
	app   int
	token uint32
}

// flow is one TCP connection or subflow.
type flow struct {
	app           int
	local, remote netip.AddrPort
	first         int // index of the first value
	acked         uint64
	resent        uint32
	spurious      uint32
	values        [len(quantities)][]float64
}

// quantities are the series of a flow, in the order of flow.values.
var quantities = [...]struct{ name, unit string }{
	{"cwnd_packets", "packets"},
	{"ssthresh_packets", "packets"},
	{"inflight_packets", "packets"},
	{"srtt_ms", "ms"},
	{"goodput_mbps", "Mbit/s"},
	{"retransmits", "packets"},
	{"spurious_retransmits", "packets"},
}

// quantityGoodput is the place of the goodput among the quantities.
const quantityGoodput = 4

// firstCount is the first of the quantities that count what happened in the interval.
const firstCount = quantityGoodput + 1

func openSockets(cfg Config) (*sockets, error) {
	s := &sockets{cfg: cfg, flows: map[uint64]*flow{}, count: map[connection]int{}, most: slices.Repeat([]int{-1}, len(cfg.Apps))}
	byNS := map[string]*dump{}
	for i, app := range cfg.Apps {
		if !app.MPTCP && !cfg.Measure.Sockets {
			continue
		}
		if byNS[app.FromNS] == nil {
			c, err := openNetlink(app.FromNS, unix.NETLINK_INET_DIAG)
			if err != nil {
				return nil, s.close(err)
			}
			d := &dump{conn: c, requests: [2][]byte{diagRequest(unix.AF_INET6), diagRequest(unix.AF_INET)}}
			byNS[app.FromNS], s.dumps = d, append(s.dumps, d)
			if cfg.Measure.Sockets {
				if d.ended, err = openEnded(app.FromNS); err != nil {
					return nil, s.close(err)
				}
			}
		}
		byNS[app.FromNS].apps = append(byNS[app.FromNS].apps, i)
	}
	// What connections have already delivered is not goodput of the first interval.
	if err := s.each(func(app int, d *diag) {
		f := s.flow(app, d)
		f.acked, f.resent, f.spurious = d.bytesAcked, d.resent, d.spurious
	}); err != nil {
		return nil, s.close(err)
	}
	return s, nil
}

// each dumps all sockets of all applications.
func (s *sockets) each(visit func(app int, d *diag)) error {
	for _, dump := range s.dumps {
		for _, request := range dump.requests {
			if err := dump.conn.ask(request, s.reader(dump, visit)); err != nil {
				return fmt.Errorf("dump sockets of %s: %w", s.cfg.Apps[dump.apps[0]].FromNS, err)
			}
		}
	}
	return nil
}

// reader reads messages of a namespace and calls visit for those of the applications' sockets.
func (s *sockets) reader(dump *dump, visit func(app int, d *diag)) func(msg []byte) error {
	return func(msg []byte) error {
		local, remote, err := diagPorts(msg)
		if err != nil {
			return err
		}
		for _, app := range dump.apps {
			if port := s.cfg.Apps[app].Port; port != local && port != remote {
				continue
			}
			d, err := parseDiag(msg)
			if err != nil {
				return err
			}
			if d.counted {
				visit(app, &d)
			}
		}
		return nil
	}
}

// flow is the flow of a socket, a new one at its first appearance.
func (s *sockets) flow(app int, d *diag) *flow {
	f := s.flows[d.cookie]
	if f == nil {
		f = &flow{app: app, first: -1}
		f.local, f.remote = d.ends()
		s.flows[d.cookie] = f
		s.order = append(s.order, f)
	}
	return f
}

// countSubflow adds an established socket to count.
func (s *sockets) countSubflow(app int, d *diag) {
	if d.state != tcpEstablished {
		return
	}
	subflows := 0
	if d.subflow {
		subflows = 1
	}
	s.count[connection{app, d.token}] += subflows
}

// fewest is the least count of the application's connections, 0 if there is none.
func (s *sockets) fewest(app int) int {
	var counts []int
	for c, n := range s.count {
		if c.app == app {
			counts = append(counts, n)
		}
	}
	if counts == nil {
		return 0
	}
	return slices.Min(counts)
}

func (s *sockets) sample(k int, elapsed time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.count)
	seen := len(s.order)
	if err := s.hearEnds(k); err != nil { // before the others are asked for: one that ends meanwhile is the next sample's
		return err
	}
	err := s.each(func(app int, d *diag) {
		s.countSubflow(app, d)
		if s.cfg.Measure.Sockets {
			s.flow(app, d).record(k, d, elapsed)
		}
	})
	// The order in which the kernel's hash table holds the sockets depends on a random number; this does not.
	slices.SortFunc(s.order[seen:], byEnds)
	for c, n := range s.count {
		s.most[c.app] = max(s.most[c.app], n)
	}
	return err
}

// record adds the values of index k. Where a sample was left out, the value is repeated, but not what was counted.
func (f *flow) record(k int, d *diag, elapsed time.Duration) {
	if f.first < 0 {
		f.first = k
	}
	if d.ssthresh >= tcpInfiniteSsthresh {
		d.ssthresh = 0
	}
	now := [len(quantities)]float64{float64(d.cwnd), float64(d.ssthresh), d.inflight(), float64(d.rttUS) / 1000}
	counts := f.counts(d, elapsed)
	copy(now[quantityGoodput:], counts[:])
	for q, v := range now {
		for f.first+len(f.values[q]) <= k {
			f.values[q] = append(f.values[q], v)
			if q >= firstCount {
				v = 0
			}
		}
	}
}

// counts are the quantities from the goodput on, of what has happened since they were asked for last.
func (f *flow) counts(d *diag, elapsed time.Duration) [len(quantities) - quantityGoodput]float64 {
	c := [len(quantities) - quantityGoodput]float64{mbps(d.bytesAcked-f.acked, elapsed), float64(d.resent - f.resent), float64(d.spurious - f.spurious)}
	f.acked, f.resent, f.spurious = d.bytesAcked, d.resent, d.spurious
	return c
}

// mbps is a rate in Mbit/s; 0 in no time.
func mbps(bytes uint64, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return float64(bytes) * 8 / 1e6 / elapsed.Seconds()
}

// byEnds orders by local, then by remote address and port.
func byEnds(a, b *flow) int { return cmp.Or(a.local.Compare(b.local), a.remote.Compare(b.remote)) }

// subflows dumps now; see Recorder.Subflows.
func (s *sockets) subflows(app string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.cfg.Apps, func(a App) bool { return a.Name == app })
	if i < 0 {
		return 0, fmt.Errorf("count subflows: no application %q", app)
	}
	clear(s.count)
	if err := s.each(s.countSubflow); err != nil {
		return 0, err
	}
	return s.fewest(i), nil
}

func (s *sockets) finish(end time.Duration, out *Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Measure.Sockets {
		if err := s.lastOfAll(int(end/s.cfg.Every) + 1); err != nil {
			return s.close(err)
		}
	}
	for i, app := range s.cfg.Apps {
		if app.MPTCP && s.most[i] >= 0 {
			out.set(app.Name, "subflows", float64(s.most[i]))
		}
		var flows []*flow
		for _, f := range s.order {
			if f.app == i && f.first >= 0 {
				flows = append(flows, f)
			}
		}
		if app.MPTCP { // the same subflow has the same number whether it joined early or late
			slices.SortStableFunc(flows, byEnds)
		}
		for k, f := range flows {
			name := fmt.Sprintf("%s/%d", app.Name, k+1)
			label := fmt.Sprintf("%s -> %s", f.local.Addr(), f.remote.Addr())
			for q, quantity := range quantities {
				if len(f.values[q]) == 0 { // it was between two samples
					continue
				}
				out.Series = append(out.Series, s.cfg.series(name+"."+quantity.name, quantity.unit, label, f.first, f.values[q]))
			}
			out.set(name, "delivered_bytes", float64(f.acked))
		}
		if s.cfg.Measure.Sockets {
			s.total(app, flows, out)
		}
	}
	return s.close(nil)
}

// total adds up the flows of an application.
func (s *sockets) total(app App, flows []*flow, out *Outcome) {
	var delivered, spurious float64
	var goodput []float64
	first := math.MaxInt
	for _, f := range flows {
		delivered, spurious = delivered+float64(f.acked), spurious+float64(f.spurious)
		first = min(first, f.first)
	}
	for _, f := range flows {
		values := f.values[quantityGoodput]
		for len(goodput) < f.first-first+len(values) {
			goodput = append(goodput, 0)
		}
		for i, v := range values {
			goodput[f.first-first+i] += v
		}
	}
	out.set(app.Name, "delivered_bytes", delivered)
	out.set(app.Name, "spurious_retransmits", spurious)
	if app.Foreign && len(flows) > 0 {
		out.Series = append(out.Series, s.cfg.series(app.Name+".goodput_mbps", "Mbit/s", "", first, goodput))
	}
}

// close closes the netlink sockets and passes on the cause.
func (s *sockets) close(cause error) error {
	for _, dump := range s.dumps {
		if err := dump.conn.close(); err != nil && cause == nil {
			cause = err
		}
		if dump.ended == nil {
			continue
		}
		if err := dump.ended.close(); err != nil && cause == nil {
			cause = err
		}
	}
	s.dumps = nil
	return cause
}

package ackpath_test

import (
	"math"
	"math/rand/v2"
)

// packetBits is a packet on the link.
const packetBits = 1500 * 8

type kind uint8

const (
	arrive kind = iota
	depart
	acked
	copied
	timeout
	begin
	paced
)

type event struct {
	at   float64
	seq  int
	flow *flow
	id   int
	kind kind
}

// sim is a drop-tail link of fixed rate, and time in s. Packets of a flow arrive in order, up to a packet's time late: without that, which flow loses is a matter
// of phases.
type sim struct {
	now     float64
	seq     int
	q       []event
	random  *rand.Rand
	service float64
	limit   int
	queued  int
	free    float64
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (s *sim) after(d float64, k kind, f *flow, id int) {
	s.seq++
	s.q = append(s.q, event{s.now + d, s.seq, f, id, k})
	for i := len(s.q) - 1; i > 0; {
		p := (i - 1) / 2
		if !s.q[i].before(&s.q[p]) {
			break
		}
		s.q[i], s.q[p] = s.q[p], s.q[i]
		i = p
	}
}

func (s *sim) pop() event {
	e := s.q[0]
	n := len(s.q) - 1
	s.q[0] = s.q[n]
	s.q = s.q[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && s.q[c+1].before(&s.q[c]) {
			c++
		}
		if !s.q[c].before(&s.q[i]) {
			break
		}
		s.q[i], s.q[c] = s.q[c], s.q[i]
		i = c
	}
	return e
}

func (s *sim) run(until float64) {
	for len(s.q) > 0 && s.q[0].at <= until {
		e := s.pop()
		s.now = e.at
		switch e.kind {
		case arrive:
			e.flow.arrive(e.id)
		case depart:
			s.queued--
		case acked:
			e.flow.ack(e.id)
		case copied:
			if !e.flow.closed {
				e.flow.ack(e.id)
			}
		case begin:
			e.flow.send()
			e.flow.timeoutAt = s.now + 1
			e.flow.timer()
		case paced:
			e.flow.waiting = false
			e.flow.send()
		case timeout:
			e.flow.timedOut()
		}
	}
	s.now = until
}

// packet is one transmission.
type packet struct {
	sent                float64
	delivered           int  // by the flow, when it was sent
	passed, acked, lost bool // passed the link, acknowledged, taken for lost
}

// flow is a sender with selective acknowledgements, in the windows' units of its algorithm: Reno or CUBIC.
type flow struct {
	*sim
	cubic bool
	rtt   float64 // s, without copies and without a queue
	lead  float64 // s, by which copies of ACKs come sooner
	fair  bool    // the control of bpf/fair.h
	todo  int     // packets

	cwnd, ssthresh                    float64
	packets                           []packet
	head, inflight, resend, delivered int
	recover                           int // transmissions from here on may lead to the next reduction
	recovering                        bool
	prior, prrDelivered, prrOut       float64
	srtt, minRTT, roundRTT, pastRTT   float64
	deviation, timeoutAt              float64
	roundAt, lastAck, arrival         float64
	nextSend                          float64
	waiting                           bool
	trainAt, fastest, beforeLoss      float64
	train                             int
	hadMost, closed                   bool // closed: copies are closed out
	opening                           int
	native, closedAt, useless         float64
	epoch, k, origin, wmax, reno      float64 // CUBIC
	hystartEnd, hystartSamples        int
	hystartRTT                        float64
	perSecond                         []int
	doneAt                            float64
	drops                             map[int]bool // transmissions the path loses by itself
}

func (f *flow) ratio() float64 {
	if !f.fair || f.closed || f.srtt == 0 {
		return 1
	}
	rtt := f.srtt
	if f.opening > 0 {
		rtt = math.Min(rtt, f.native-f.lead)
	}
	return rtt / (rtt + f.lead)
}
func (f *flow) window() int { return max(int(f.cwnd*f.ratio()+0.5), 2) }

func (f *flow) start(at float64) {
	f.cwnd, f.ssthresh = 10, 1e9
	f.minRTT, f.hystartRTT = 1e9, 1e9
	f.after(at-f.now, begin, f, 0)
}

// paced says whether the next packet may leave now.
func (f *flow) mayLeave() bool {
	closing := f.closed && f.now-f.closedAt < 2*f.native
	if !f.fair || f.srtt == 0 || f.closed && !closing {
		return true
	}
	if f.now < f.nextSend-1e-9 {
		if !f.waiting {
			f.waiting = true
			f.after(f.nextSend-f.now, paced, f, 0)
		}
		return false
	}
	gain, rtt := 1.05, f.srtt
	if closing {
		rtt = math.Max(f.native, rtt)
	} else if f.cwnd < f.ssthresh {
		gain = 2
	}
	f.nextSend = math.Max(f.nextSend, f.now-0.001) + rtt/float64(f.window())/gain
	return true
}

func (f *flow) send() {
	for f.todo+f.resend > 0 && f.inflight < f.allowed() && f.mayLeave() {
		if f.resend > 0 {
			f.resend--
		} else {
			f.todo--
		}
		f.packets = append(f.packets, packet{sent: f.now, delivered: f.delivered})
		f.inflight++
		f.arrival = math.Max(f.arrival, f.now+f.random.Float64()*f.service)
		f.after(f.arrival-f.now, arrive, f, len(f.packets)-1)
		if f.recovering {
			f.prrOut++
		}
	}
}

func (f *flow) allowed() int {
	if f.recovering {
		ss := f.ssthresh * f.ratio()
		var s float64
		if float64(f.inflight) > ss {
			s = math.Ceil(f.prrDelivered*ss/f.prior) - f.prrOut
		} else {
			s = math.Min(ss-float64(f.inflight), math.Max(f.prrDelivered-f.prrOut, 0)+1)
		}
		if f.inflight == 0 {
			s = math.Max(s, 1) // the kernel sends the first lost packet again in any case
		}
		return f.inflight + max(int(s), 0)
	}
	return f.window()
}

func (f *flow) arrive(id int) {
	if f.queued > f.limit || f.drops[id] {
		return
	}
	f.packets[id].passed = true
	f.queued++
	f.free = math.Max(f.now, f.free) + f.service
	f.after(f.free-f.now, depart, f, 0)
	if f.lead > 0 {
		f.after(f.free-f.now+f.rtt-f.lead, copied, f, id)
	}
	f.after(f.free-f.now+f.rtt, acked, f, id)
}

// ack tells of a packet, and of all before it that passed.
func (f *flow) ack(id int) {
	p := &f.packets[id]
	if p.acked {
		return
	}
	rtt := f.now - p.sent
	longest := rtt
	for i := min(f.head, id); i <= id; i++ {
		if one := &f.packets[i]; one.passed && !one.acked {
			longest = math.Max(longest, f.now-one.sent)
			f.takes(one)
		}
	}
	f.measure(rtt, longest)
	newLoss := f.findLost(id)
	if f.recovering && id >= f.recover {
		f.recovering = false
		f.cwnd = f.ssthresh
	}
	if newLoss {
		f.hadMost = float64(f.delivered-p.delivered)/rtt >= 0.875*f.fastest
		f.reduce()
	}
	if !f.recovering {
		f.grow(rtt)
	}
	if f.fair {
		f.gate()
	}
	if f.todo+f.resend+f.inflight == 0 && f.doneAt == 0 {
		f.doneAt = f.now
	}
	f.lastAck = f.now
	f.send()
}

func (f *flow) takes(p *packet) {
	p.acked = true
	if p.lost { // it was not
		f.resend--
		f.inflight++
	}
	f.inflight--
	f.delivered++
	for len(f.perSecond) <= int(f.now) {
		f.perSecond = append(f.perSecond, 0)
	}
	f.perSecond[int(f.now)]++
	if f.recovering {
		f.prrDelivered++
	}
}

// gate lets copies in while growth can be hastened, and closes them out two round trips after, if what follows is no timeout, or as soon as they come too little sooner.
func (f *flow) gate() {
	f.useless += math.Min(f.now-f.lastAck, f.srtt)
	least := math.Max(0.005, f.srtt/8)
	if !f.closed && f.lastAck > 0 {
		least /= 2
	}
	switch {
	case !f.closed && f.lead < least:
		f.close()
	case f.recovering:
	case f.closed && f.lead >= least && f.gains():
		f.closed, f.useless = false, 0
		f.opening, f.native = 2, f.srtt
		f.minRTT -= f.lead
		f.pastRTT -= f.lead
		f.roundRTT -= f.lead
	case !f.closed && f.useless > 2*(f.srtt+f.lead) && f.lead < 0.75*(f.srtt+0.2):
		f.close()
	}
}

func (f *flow) close() {
	f.native, f.closedAt, f.closed = f.srtt+f.lead, f.now, true
	f.minRTT += f.lead
	f.pastRTT, f.roundRTT = 0, 0
}

// rto is the kernel's retransmission timer.
func (f *flow) rto() float64 { return f.srtt + math.Max(0.2, 4*f.deviation) }

// measure takes in the round trips of the last packet that an ACK tells of, and of the first one, by which the kernel sets its timer.
func (f *flow) measure(rtt, longest float64) {
	if f.srtt == 0 {
		f.srtt, f.deviation = longest, longest/2
	}
	f.deviation += (math.Abs(longest-f.srtt) - f.deviation) / 4
	f.srtt += (longest - f.srtt) / 8
	f.timeoutAt = f.now + f.rto()
	f.minRTT = math.Min(f.minRTT, rtt)
	f.roundRTT = math.Max(f.roundRTT, rtt)
	if f.now-f.roundAt > f.srtt {
		f.roundAt = f.now
		f.pastRTT, f.roundRTT = f.roundRTT, 0
		f.opening = max(f.opening-1, 0)
	}
	if f.train++; f.train >= 6 {
		if f.trainAt > 0 {
			f.fastest = math.Max(f.fastest, 6/(f.now-f.trainAt))
		}
		f.trainAt, f.train = f.now, 0
	}
}

// findLost takes for lost what three later transmissions have overtaken, and says whether a window must be reduced for it.
func (f *flow) findLost(id int) (reduce bool) {
	for ; f.head <= id-3; f.head++ {
		if h := &f.packets[f.head]; !h.acked && !h.lost {
			h.lost = true
			f.inflight--
			f.resend++
			reduce = reduce || f.head >= f.recover
		}
	}
	return reduce
}

func (f *flow) reduce() {
	f.beforeLoss = f.cwnd
	f.useless = 0
	f.prior = float64(f.window())
	if f.cubic {
		if f.cwnd < f.wmax {
			f.wmax = f.cwnd * 1.7 / 2
		} else {
			f.wmax = f.cwnd
		}
		f.ssthresh = math.Max(f.cwnd*0.7, 2)
		f.epoch = 0
	} else {
		f.ssthresh = math.Max(f.cwnd/2, 2)
	}
	f.recover = len(f.packets)
	f.recovering = true
	f.prrDelivered, f.prrOut = 1, 0
}

// gains says whether growth may be faster than without copies: where no queue shows, nobody is hurt.
func (f *flow) gains() bool {
	queue := math.Max(f.roundRTT, f.pastRTT) - f.minRTT
	bound := math.Min(math.Max(f.minRTT/32, 0.004), 0.008)
	return f.pastRTT > 0 && queue < bound && (f.cwnd < f.ssthresh || f.hadMost && f.cwnd < f.beforeLoss)
}

// hasten is by how much it is.
func (f *flow) hasten() float64 {
	switch {
	case !f.fair || f.closed || !f.gains():
		return 1
	case f.cwnd < f.ssthresh:
		f.useless = 0
		return 1 / f.ratio()
	}
	f.useless = 0
	return math.Min(1/f.ratio(), 2)
}

func (f *flow) grow(rtt float64) {
	if f.inflight+1 < f.window()/2 { // application-limited
		return
	}
	b := f.hasten()
	if f.cwnd < f.ssthresh {
		f.cwnd = math.Min(f.cwnd+b, f.ssthresh)
		if f.cubic {
			f.hystart(rtt)
		}
		return
	}
	if !f.cubic {
		f.cwnd += b / f.cwnd
		return
	}
	if f.epoch == 0 {
		f.epoch = f.now
		f.reno = f.cwnd
		f.k, f.origin = 0, f.cwnd
		if f.wmax > f.cwnd {
			f.k = math.Cbrt((f.wmax - f.cwnd) / 0.4)
			f.origin = f.wmax
		}
	}
	f.epoch -= (b - 1) * math.Min(f.now-f.lastAck, f.srtt)
	min := f.minRTT
	if f.fair && !f.closed {
		min += f.lead
	}
	t := f.now - f.epoch + min
	target := f.origin + 0.4*math.Pow(t-f.k, 3)
	cnt := 100 * f.cwnd
	if target > f.cwnd {
		cnt = f.cwnd / (target - f.cwnd)
	}
	if f.wmax == 0 {
		cnt = math.Min(cnt, 20)
	}
	f.reno += b * 0.529 / f.cwnd
	if f.reno > f.cwnd {
		cnt = math.Min(cnt, f.cwnd/(f.reno-f.cwnd))
	}
	f.cwnd += b / math.Max(cnt, 2)
}

func (f *flow) hystart(rtt float64) {
	if f.head >= f.hystartEnd {
		f.hystartEnd = len(f.packets)
		f.hystartRTT, f.hystartSamples = 1e9, 0
	}
	if f.window() < 16 {
		return
	}
	f.hystartRTT = math.Min(f.hystartRTT, rtt)
	f.hystartSamples++
	native := f.minRTT / f.ratio()
	if f.hystartSamples > 8 && f.hystartRTT > f.minRTT+math.Min(math.Max(native/8, 0.004), 0.016) {
		f.ssthresh = f.cwnd
	}
}

// timer runs out when nothing was acknowledged for so long; the handshake has left it at a second.
func (f *flow) timer() { f.after(math.Max(f.timeoutAt-f.now, 0.001), timeout, f, 0) }

func (f *flow) timedOut() {
	if f.inflight > 0 && f.now >= f.timeoutAt {
		f.reduce()
		f.recovering = false
		for i := f.head; i < len(f.packets); i++ {
			if !f.packets[i].acked && !f.packets[i].lost {
				f.packets[i].lost = true
				f.inflight--
				f.resend++
			}
		}
		f.head = len(f.packets)
		f.cwnd = 1 / f.ratio()
		f.wmax = 0
		f.hadMost = false
		f.timeoutAt = f.now + 2*f.rto()
		f.send()
	}
	if f.doneAt == 0 {
		f.timer()
	}
}

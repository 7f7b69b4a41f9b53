package ackpath_test

import (
	"math"
	"math/rand/v2"
)

const packetBits = 1500 * 8

type kind uint8

const (
	arrive kind = iota
	depart
	acked
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

type sim struct {
	now    float64
	seq    int
	q      []event
	random *rand.Rand
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
		case begin:
			e.flow.send()
			e.flow.timer()
		case paced:
			e.flow.wake = false
			e.flow.send()
		case timeout:
			e.flow.timedOut(e.id)
		}
	}
	s.now = until
}

type packet struct {
	id      int
	sent    float64
	acked   bool
	lost    bool
	deliveredAt float64
	delivered int // at sending
}

type flow struct {
	*sim
	cubic    bool
	rtt      float64 // native, without queue
	lead     float64 // actual saving
	control  bool
	honestSS, honestCA bool
	factor float64 // limit
	pulse, pulsing, dither bool
	u float64
	roundAt float64
	cuts int
	gamma float64
	todo     int     // packets to send
	// sender
	started float64
	pkts     []packet // in order of transmission; each transmission own id
	head     int // lowest not resolved
	inflight int
	resend   int
	delivered int
	doneAt float64
	cwnd, ssthresh float64 // native units in control
	prior float64
	recover int // transmissions before this: no new reduction
	inRecovery bool
	prrDelivered, prrOut float64
	shownSS float64
	srtt, minrtt float64
	rto int
	// cubic
	epoch, k, origin, wmax, reno float64
	lastAck float64
	// alone
	capacity float64
	trainAt float64
	trainN int
	fullRate float64
	lossW float64
	aloneAtLoss bool
	boosted, total int
	perSecond []int
	losses int
	drops map[int]bool
	roundEnd int
	hyMin, hyRound float64
	hySamples int
	trace func(f *flow)
	onDrop func(int)
	arrival float64
	strict bool
	roundMax, lastMax float64
	pace, share, roundMin, lastMin float64
	nextSend float64
	wake bool
	onCut func()
}

func (f *flow) native() float64 { return f.srtt + f.lead }
func (f *flow) ratio() float64 {
	if !f.control || f.srtt == 0 {
		return 1
	}
	return f.srtt / (f.srtt + f.lead)
}
func (f *flow) window() int {
	u := 0.5
	if f.dither {
		u = f.u
	}
	w := max(int(f.cwnd*f.ratio()+u), 2)
	if f.pulse && f.pulsing {
		w++
	}
	return w
}

func (f *flow) start(at float64) {
	f.cwnd, f.ssthresh = 10, 1e9
	f.minrtt = 1e9
	f.roundMin, f.lastMin = 1e9, 1e9
	f.hyMin, f.hyRound = 1e9, 1e9
	f.started = at
	f.after(at-f.now, begin, f, 0)
}

func (f *flow) send() {
	for (f.todo > 0 || f.resend > 0) && f.inflight < f.allowed() {
		if f.pace > 0 && f.srtt > 0 {
			if f.now < f.nextSend-1e-9 {
				if !f.wake {
					f.wake = true
					f.after(f.nextSend-f.now, paced, f, 0)
				}
				return
			}
			g := f.pace
			if f.cwnd < f.ssthresh {
				g = 2
			}
			f.nextSend = math.Max(f.nextSend, f.now-0.001) + f.srtt/float64(f.window())/g
		}
		if f.resend > 0 {
			f.resend--
		} else {
			f.todo--
		}
		f.transmit()
		if f.inRecovery {
			f.prrOut++
		}
	}
}

func (f *flow) allowed() int {
	if f.inRecovery {
		ss := f.ssthresh * f.ratio()
		var s float64
		if float64(f.inflight) > ss {
			s = math.Ceil(f.prrDelivered*ss/f.prior) - f.prrOut
		} else {
			s = math.Min(ss-float64(f.inflight), math.Max(f.prrDelivered-f.prrOut, 0)+1)
		}
		return f.inflight + max(int(s), 0)
	}
	return f.window()
}

func (f *flow) transmit() {
	id := len(f.pkts)
	f.pkts = append(f.pkts, packet{id: id, sent: f.now, delivered: f.delivered})
	f.inflight++
	f.arrival = math.Max(f.arrival, f.now+f.random.Float64()*f.service)
	f.after(f.arrival-f.now, arrive, f, id)
}

func (f *flow) arrive(id int) {
	if f.queued > f.limit || f.drops[id] {
		f.losses++
		if f.onDrop != nil {
			f.onDrop(id)
		}
		return
	}
	f.queued++
	f.free = math.Max(f.now, f.free) + f.service
	f.after(f.free-f.now, depart, f, 0)
	f.after(f.free-f.now+f.rtt-f.lead, acked, f, id)
}

func (f *flow) ack(id int) {
	p := &f.pkts[id]
	if p.acked {
		return
	}
	p.acked = true
	if p.lost { // spurious
		f.resend--
		f.inflight++
		if f.resend < 0 {
			f.resend = 0
		}
	}
	f.inflight--
	f.delivered++
	sec := int(f.now)
	for len(f.perSecond) <= sec {
		f.perSecond = append(f.perSecond, 0)
	}
	f.perSecond[sec]++
	rtt := f.now - p.sent
	if f.srtt == 0 {
		f.srtt = rtt
	} else {
		f.srtt += (rtt - f.srtt) / 8
	}
	f.minrtt = math.Min(f.minrtt, rtt)
	f.roundMin = math.Min(f.roundMin, rtt)
	f.roundMax = math.Max(f.roundMax, rtt)
	rate := float64(f.delivered-p.delivered) / rtt
	_ = rate
	f.trainN++
	if f.trainN >= 6 {
		if f.now > f.trainAt && f.trainAt > 0 {
			f.capacity = math.Max(f.capacity, 6/(f.now-f.trainAt))
		}
		f.trainAt, f.trainN = f.now, 0
	}
	// losses: a transmission is lost when three later ones are acknowledged
	newLoss := false
	for f.head < len(f.pkts) && f.head <= id-3 {
		h := &f.pkts[f.head]
		if !h.acked && !h.lost {
			h.lost = true
			f.inflight--
			f.resend++
			if h.id >= f.recover {
				newLoss = true
			}
		}
		f.head++
	}
	if f.inRecovery && id >= f.recover {
		f.inRecovery = false
		f.cwnd = f.ssthresh
	}
	if newLoss {
		f.reduce(rate)
	}
	if f.inRecovery {
		f.prrDelivered++
		f.pulsing = false
	} else {
		w := int(f.cwnd)
		f.grow(rtt)
		f.pulsing = int(f.cwnd) > w && f.cwnd > f.ssthresh
	}
	if f.todo == 0 && f.resend == 0 && f.inflight == 0 && f.doneAt == 0 {
		f.doneAt = f.now
	}
	f.lastAck = f.now
	if f.now-f.roundAt > f.srtt {
		f.roundAt = f.now
		f.lastMin, f.roundMin = f.roundMin, 1e9
		f.lastMax, f.roundMax = f.roundMax, 0
	}
	if f.trace != nil {
		f.trace(f)
	}
	f.send()
}

func (f *flow) reduce(rate float64) {
	f.aloneAtLoss = rate >= f.share*f.capacity
	f.lossW = f.cwnd
	f.cuts++
	if f.onCut != nil {
		f.onCut()
	}
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
	f.recover = len(f.pkts)
	f.inRecovery = true
	f.prrDelivered, f.prrOut = 0, 0
}

// hasten is by how much growth runs faster than the native RTT's.
func (f *flow) hasten(rtt float64) float64 {
	if !f.control || f.lead == 0 {
		return 1
	}
	worst := math.Min(f.roundMin, f.lastMin)
	if f.strict {
		worst = math.Max(f.roundMax, f.lastMax)
	}
	quiet := worst-f.minrtt < math.Max(math.Min(f.minrtt/16, 0.016), 0.004)
	b := 1 / f.ratio()
	if f.cwnd < f.ssthresh {
		if f.honestSS && quiet {
			return b
		}
		return 1
	}
	b = math.Min(b, f.factor)
	if f.honestCA && f.aloneAtLoss && f.cwnd < f.lossW && quiet {
		return b
	}
	return 1
}

func (f *flow) grow(rtt float64) {
	if f.inflight+1 < f.window()/2 { // application-limited
		return
	}
	b := f.hasten(rtt)
	f.total++
	if b > 1 {
		f.boosted++
	}
	if f.cwnd < f.ssthresh {
		f.cwnd = math.Min(f.cwnd+b, f.ssthresh)
		if f.cubic {
			f.hystart(rtt)
		}
		return
	}
	if !f.cubic {
		if f.gamma > 0 {
			b *= math.Pow(f.ratio(), f.gamma)
		}
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
	min := f.minrtt
	if f.control {
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
	f.hyMin = math.Min(f.hyMin, rtt)
	if f.head >= f.roundEnd {
		f.roundEnd = len(f.pkts)
		f.hyRound, f.hySamples = 1e9, 0
	}
	if f.window() < 16 {
		return
	}
	f.hyRound = math.Min(f.hyRound, rtt)
	f.hySamples++
	m := f.hyMin
	if f.control {
		m += f.lead
	}
	if f.hySamples > 8 && f.hyRound > f.hyMin+math.Min(math.Max(m/8, 0.004), 0.016) {
		f.ssthresh = f.cwnd
	}
}

func (f *flow) timer() { f.after(math.Max(1, 2*f.srtt), timeout, f, f.delivered) }

func (f *flow) timedOut(d int) {
	if f.inflight > 0 && f.delivered == d {
		f.rto++
		f.reduce(0)
		f.inRecovery = false
		for i := f.head; i < len(f.pkts); i++ {
			if !f.pkts[i].acked && !f.pkts[i].lost {
				f.pkts[i].lost = true
				f.inflight--
				f.resend++
			}
		}
		f.head = len(f.pkts)
		f.cwnd = 1 / f.ratio()
		f.wmax = 0
		f.aloneAtLoss = false
		f.send()
	}
	if f.doneAt == 0 {
		f.timer()
	}
}

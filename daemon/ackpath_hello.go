package daemon

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"plait.dev/plait/ackpath"
)

// hellosAtOnce are sent over a way at most, and one between those that are due: the sender answers hellosPerSecond. It keeps what it was asked about for takenFor, in which there
// are enough of them for takenMost flows.
const hellosAtOnce = 16

// greet sends the hellos that are due, and others about flows of which the sender has not heard. The caller has r.mu.
func (r *ackReceiver) greet(now time.Time) {
	ask, news := map[wayKey][]*ackFlow{}, map[wayKey][]*ackFlow{}
	if r.mode == On {
		for _, f := range r.flows {
			if !f.decision.Ask {
				continue
			}
			ask[f.quick] = append(ask[f.quick], f)
			if f.due(now) {
				news[f.quick] = append(news[f.quick], f)
			}
		}
	}
	for k, w := range r.ways {
		if !w.used.Equal(now) {
			continue
		}
		about, most := news[k], 1
		if w.Ask(now) {
			about, most = ask[k], hellosAtOnce
		} else if len(about) == 0 {
			continue
		}
		slices.SortFunc(about, func(a, b *ackFlow) int { return a.asked.Compare(b.asked) })
		var names []ackpath.Name
		for _, f := range about[:min(len(about), most*ackpath.MaxFlows)] {
			f.asked = now
			names = append(names, f.name)
		}
		w.lacks = ""
		if err := r.hello(k, w, names); err != nil {
			w.lacks = err.Error()
		}
	}
}

// hello sends what there is to ask over one way, in as many hellos as it takes.
func (r *ackReceiver) hello(k wayKey, w *ackWay, about []ackpath.Name) error {
	socket := r.sockets[k.helloKey]
	if socket == nil {
		var err error
		if socket, err = r.open(w.link); err != nil {
			return err
		}
		r.sockets[k.helloKey] = socket
		r.running.Go(func() { r.hear(k.helloKey, socket) })
	}
	to := netip.AddrPortFrom(k.server, r.port)
	for {
		n, nonce := min(len(about), ackpath.MaxFlows), rand.Uint64()
		w.Asked(r.clock(), nonce) // the look began before the search of all sockets
		if _, err := socket.WriteToUDPAddrPort(ackpath.Hello{Nonce: nonce, Flows: about[:n]}.Append(nil), to); err != nil {
			return err
		}
		if about = about[n:]; len(about) == 0 {
			return nil
		}
	}
}

// hear reads answers until the socket is closed.
func (r *ackReceiver) hear(k helloKey, socket *net.UDPConn) {
	b := make([]byte, 2048)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(b)
		now := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for instance that the port is closed there: silence says the same
			time.Sleep(time.Millisecond)
			continue
		}
		if a, err := ackpath.ParseAnswer(b[:n]); err == nil && from.Port() == r.port {
			r.answered(now, wayKey{k, from.Addr().Unmap()}, a)
		}
	}
}

// answered takes in an answer.
func (r *ackReceiver) answered(now time.Time, k wayKey, a ackpath.Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.ways[k]
	if w == nil {
		return
	}
	first := w.RTT() == 0
	if !w.Answered(now, a.Nonce, a.Fair) {
		return
	}
	told := map[ackpath.Name]ackpath.Told{}
	for _, t := range a.Flows {
		told[t.Name] = t
	}
	for _, f := range r.flows {
		t, ok := told[f.name]
		if !ok || f.quick != k {
			continue
		}
		first = first || f.copied == nil
		if f.answers == 0 { // the sender may have taken copies of the subflow before it was forgotten here
			f.before = ackpath.Told{Copies: -t.Copies, Late: -t.Late}
		}
		if t.Copies < f.told.Copies {
			f.before.Copies += f.told.Copies
			f.before.Late += f.told.Late
		}
		f.told = t
		f.answers++
	}
	if first { // what waits for this need not wait for the next look
		r.wake()
	}
}

// set puts mode and ratio in force. What paused by another ratio is asked about anew.
func (r *ackReceiver) set(mode Mode, ratio float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ratio != r.ratio {
		for _, f := range r.flows {
			if f.copied == nil {
				f.policies = map[wayKey]*ackpath.Flow{}
				f.unask()
			}
		}
	}
	r.mode, r.ratio = mode, ratio
}

// close ends all copies, and waits for the goroutines.
func (r *ackReceiver) close() error {
	close(r.stop)
	r.mu.Lock()
	r.mode = Off
	var errs []error
	for key, f := range r.flows {
		errs = append(errs, r.end(key, f, "the lever ackpath is off"))
	}
	errs = append(errs, r.kernel.watchSent(nil))
	for c := range maps.Values(r.sockets) {
		errs = append(errs, c.Close())
	}
	r.mu.Unlock()
	r.running.Wait()
	return errors.Join(errs...)
}

package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"plait.dev/plait/lab/result"
)

// ARMS, an application of 2011 that spreads one SCTP association over the receiver's addresses (chapters 3 to 6 of its thesis): a
// socket of the one-to-many style, and for every message a destination, with SCTP_ADDR_OVER. It is here to be measured, not to be used:
// nothing is encrypted, and Linux takes what arrives late by another path for lost.

const (
	// armsMessage is the size of a message in bytes: one fits into a packet. The thesis does not say.
	armsMessage = 1400
	// armsAgain is after how many bytes rates are measured again; armsProbe is how long that takes (section 6.1), and armsSettle what of
	// it is left out: what fills the buffer for sending says nothing of the path. How ARMS counts the thesis does not say.
	armsAgain  = 50e6
	armsProbe  = 3 * time.Second
	armsSettle = time.Second
)

// armsSender divides a transfer between the receiver's addresses, of which the first is the association's primary one.
type armsSender struct {
	*run
	socket      *armsEnd
	association uint32
	over        []byte
	peers       []netip.AddrPort
	weights     []float64 // of the bytes to each
	sent        []int64   // since the weights were set
	primary     int64     // bytes to the first address
	total       int64
	asked       []result.Series // the congestion window of each address, with split cwnd
}

// give sends a message to an address.
func (a *armsSender) give(i int) error {
	n := min(armsMessage, a.app.Bytes-a.total)
	a.total += n
	a.sent[i] += n
	if i == 0 {
		a.primary += n
	}
	return a.socket.send(int(n), a.peers[i], a.over)
}

// weigh sets the ratio from here on.
func (a *armsSender) weigh(weights []float64) {
	a.weights, a.sent = weights, make([]int64, len(a.peers))
}

// next is the address that is furthest behind its share.
func (a *armsSender) next() int {
	best := 0
	for i := range a.peers {
		if float64(a.sent[i]+armsMessage)/a.weights[i] < float64(a.sent[best]+armsMessage)/a.weights[best] {
			best = i
		}
	}
	return best
}

// windows sends to each address what its congestion window says, and asks again when that is given (section 5.3).
func (a *armsSender) windows() error {
	a.weigh(nil)
	for i := range a.peers {
		a.asked = append(a.asked, result.Series{Name: fmt.Sprintf("address%d_cwnd_bytes", i+1), Unit: "bytes", Label: a.peers[i].Addr().String()})
	}
	for a.total < a.app.Bytes {
		for i, peer := range a.peers {
			_, window, err := a.socket.path(a.association, peer)
			if err != nil {
				return err
			}
			a.asked[i].TimesS = append(a.asked[i].TimesS, round(a.since().Seconds(), 6))
			a.asked[i].Values = append(a.asked[i].Values, float64(window))
			for given := 0; given < window && a.total < a.app.Bytes; given += armsMessage {
				if err := a.give(i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// probe measures the rates of the first two addresses: the transfer goes to the first, and data without meaning over an association of
// its own to the second (section 5.4).
func (a *armsSender) probe(ctx context.Context) ([]float64, error) {
	near, far, err := a.armsPair(0, a.peers[1].Addr())
	if err != nil {
		return nil, err
	}
	association, err := near.association()
	var to []netip.AddrPort
	if err == nil {
		to, err = near.peers(association, a.ends.From)
	}
	if err != nil {
		return nil, errors.Join(err, near.Close(), far.Close())
	}
	began := a.since()
	settled := func() bool { return a.since() >= began+armsSettle }
	over := func() bool { return a.since() >= began+armsProbe || ctx.Err() != nil }
	var dummy int64
	var sides sync.WaitGroup
	sides.Go(func() {
		buf := make([]byte, readBytes)
		for {
			if _, err := far.Read(buf); err != nil {
				return
			}
		}
	})
	sides.Go(func() {
		to, own := to[0], addrOver(association)
		for !over() && near.send(armsMessage, to, own) == nil {
			if settled() {
				dummy += armsMessage
			}
		}
	})
	var real int64
	for !over() && err == nil && a.total < a.app.Bytes {
		if err = a.give(0); settled() {
			real += armsMessage
		}
	}
	_ = near.SetDeadline(time.Unix(1, 0))
	_ = far.SetDeadline(time.Unix(1, 0))
	sides.Wait()
	err = errors.Join(err, near.Close(), far.Close())
	return []float64{float64(max(real, 1)), float64(max(dummy, 1))}, err
}

// send sends everything as the split says.
func (a *armsSender) send(ctx context.Context) (err error) {
	weights := make([]float64, len(a.peers))
	for i := range weights {
		weights[i] = 1
	}
	switch {
	case a.app.Split == "cwnd":
		return a.windows()
	case a.app.Split == "static" && len(a.app.Ratio) != len(a.peers):
		return fmt.Errorf("the receiver has %d addresses, ratio %d numbers", len(a.peers), len(a.app.Ratio))
	case a.app.Split == "static":
		weights = a.app.Ratio
	}
	a.weigh(weights)
	measured := int64(0)
	for a.total < a.app.Bytes && err == nil {
		if a.app.Split == "measured" && len(a.peers) > 1 && a.total >= measured {
			measured += armsAgain
			if weights, err = a.probe(ctx); err != nil {
				return err
			}
			a.weigh(weights)
			continue
		}
		err = a.give(a.next())
	}
	return err
}

// confirm waits until a heartbeat to each address has been answered, in vain at the longest for readyLimit: until then Linux sends what is meant for an address to another
// (sctp_outq_select_transport in net/sctp/outqueue.c), and of itself it sends the first heartbeat after 1.5 to 4.5 s.
func (a *armsSender) confirm(ctx context.Context) error {
	for waited := time.Duration(0); ; waited += readyPoll {
		var silent *netip.AddrPort
		for _, peer := range a.peers {
			state, _, err := a.socket.path(a.association, peer)
			if err == nil && state == sctpUnconfirmed {
				silent = &peer
				if waited%time.Second == 0 {
					err = a.socket.heartbeat(a.association, peer)
				}
			}
			if err != nil {
				return err
			}
		}
		switch {
		case silent == nil:
			return nil
		case waited >= readyLimit:
			return fmt.Errorf("address %s of the receiver answers no heartbeat of %s in %v: name with from_link an address from which the sender reaches all of the receiver's", silent.Addr(), a.ends.From, readyLimit)
		}
		select {
		case <-time.After(readyPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// arms sends bytes from one address to all of the receiver's, or to one if the application names its link.
func arms(ctx context.Context, r *run) (*Outcome, error) {
	r.begin()
	near, far, err := r.armsPair(r.ends.Port, r.ends.To)
	if err != nil {
		return nil, err
	}
	defer far.Close()
	defer near.Close()
	connected := r.since()
	a := &armsSender{run: r, socket: near}
	if a.association, err = near.association(); err == nil {
		a.peers, err = near.peers(a.association, r.ends.From)
	}
	if err != nil {
		return nil, err
	}
	a.over = addrOver(a.association)
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	near.until(both)
	far.until(both)
	var sides sync.WaitGroup
	sides.Go(func() {
		err := a.confirm(both)
		if err == nil {
			err = a.send(both)
		}
		if err != nil {
			cancel(fmt.Errorf("send: %w", err))
		}
	})
	sides.Go(func() {
		var t timing
		if err := r.receive(far, r.arrival(r.app.Bytes, &t)); err != nil {
			cancel(fmt.Errorf("receive: %w", err))
		}
	})
	sides.Wait()
	if err := context.Cause(both); err != nil && ctx.Err() == nil {
		return nil, err
	}
	end := r.end()
	if r.meter.bytes == r.app.Bytes {
		end = r.meter.last
	}
	out := r.meter.outcome(end)
	if r.meter.bytes == r.app.Bytes {
		out.Metrics["completion_s"] = round((end - r.start).Seconds(), 6)
	}
	out.Metrics["connect_ms"] = ms(connected - r.start)
	out.Series = append(out.Series, a.asked...)
	out.Metrics["primary_share"] = round(float64(a.primary)/float64(max(a.total, 1)), 4)
	return out, nil
}

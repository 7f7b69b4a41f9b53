// Package measure finds what the links to another host give, by using them.
package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/pipe"
	"plait.dev/plait/stripe/ssh"
)

const (
	// warm is left out: TCP looks for the rate at first.
	warm = 2 * time.Second
	// during is measured.
	during = 3 * time.Second
)

// Link is what one link gave while all of them were full.
type Link struct {
	Link    string
	Far     bool          // it is the other host's
	ToBps   float64       // bits per second of the stream, without headers
	FromBps float64       // the same
	RTT     time.Duration // to the peer's acknowledgement, with full queues
	Error   string        `json:",omitempty"` // why the link was not used, one way at least
}

// saw adds what statistics say. A link may work one way at a time only: then why not the other one stays.
func (l *Link) saw(s stripe.LinkStats, policy stripe.Policy) {
	l.Error = cmp.Or(l.Error, s.Error)
	for _, p := range s.Paths {
		l.RTT = max(l.RTT, p.RTT)
		if p.State == stripe.Spent && policy.CapBytes > 0 { // otherwise it is that of the other end
			l.Error = cmp.Or(l.Error, "it has reached its cap")
		}
	}
}

// Links fills all links to a host, then all from it, and tells of those of this host and then of the other's.
func Links(ctx context.Context, host string, opt ssh.Options) ([]Link, error) {
	type name struct {
		far  bool
		link string
	}
	links, policies := map[name]*Link{}, map[bool]map[string]stripe.Policy{false: opt.Links, true: opt.FarLinks}
	at := func(far bool, s stripe.LinkStats) *Link {
		of := name{far, s.Name}
		if links[of] == nil {
			links[of] = &Link{Link: s.Name, Far: far}
		}
		links[of].saw(s, policies[far][s.Name])
		return links[of]
	}
	err := fill(ctx, host, "cat > /dev/null", zeros{}, opt, func(far bool, before, after stripe.LinkStats) {
		at(far, after).ToBps = 8 * float64(after.SentBytes-before.SentBytes) / during.Seconds()
	})
	if err != nil {
		return nil, err
	}
	err = fill(ctx, host, "exec cat /dev/zero", eternal{ctx}, opt, func(far bool, before, after stripe.LinkStats) {
		at(far, after).FromBps = 8 * float64(after.ReceivedBytes-before.ReceivedBytes) / during.Seconds()
	})
	var near, far []Link
	for of, l := range links {
		if of.far {
			far = append(far, *l)
		} else {
			near = append(near, *l)
		}
	}
	for _, out := range [][]Link{near, far} {
		slices.SortFunc(out, func(a, b Link) int { return cmp.Compare(a.Link, b.Link) })
	}
	return append(near, far...), err
}

var errMeasured = errors.New("measured")

// fill runs a command that fills the links and tells what each did.
func fill(ctx context.Context, host, command string, in io.Reader, opt ssh.Options, tell func(far bool, before, after stripe.LinkStats)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var measuring sync.WaitGroup
	status, err := pipe.Run(ctx, host, command, in, io.Discard, os.Stderr, opt, func(c *stripe.Conn) {
		measuring.Go(func() {
			if wait(ctx, warm) != nil {
				return
			}
			before, farBefore := byName(c.Stats()), byName(c.PeerStats())
			if wait(ctx, during) != nil {
				return
			}
			for _, l := range c.Stats() {
				tell(false, before[l.Name], l)
			}
			for _, l := range c.PeerStats() {
				tell(true, farBefore[l.Name], l)
			}
			stop(errMeasured)
		})
	})
	stop(nil)
	measuring.Wait()
	switch {
	case errors.Is(err, errMeasured):
		return nil
	case err == nil: // without it nothing is sent, which says nothing of the links
		err = fmt.Errorf("measure: %s on %s ended by itself, with status %d", command, host, status)
	}
	return err
}

func byName(links []stripe.LinkStats) map[string]stripe.LinkStats {
	out := map[string]stripe.LinkStats{}
	for _, l := range links {
		out[l.Name] = l
	}
	return out
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// zeros is a stream without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// eternal is an input on which nothing comes.
type eternal struct{ ctx context.Context }

func (e eternal) Read([]byte) (int, error) { <-e.ctx.Done(); return 0, io.EOF }

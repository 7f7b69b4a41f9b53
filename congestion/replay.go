package congestion

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"plait.dev/plait/signals"
)

// maxLine is the longest line Replay reads, in bytes: hundreds of times a sample.
const maxLine = 1 << 18

// sweepUs is how often sockets are looked for that are forgotten, as the daemon does.
const sweepUs = 10_000_000

// replayed is a socket whose samples are read.
type replayed struct {
	policy Policy
	atUs   uint64
	chosen *[2]signals.Algorithm // the last; nil: none yet
}

// replay is the sockets that the daemon would know.
type replay struct {
	sockets       map[uint64]*replayed
	newest, swept uint64
}

func (r *replay) end(cookie uint64) {
	if of, ok := r.sockets[cookie]; ok {
		of.policy.End()
		delete(r.sockets, cookie)
	}
}

// sweep ends the sockets that are forgotten by the time of a sample; all, if one begins so much before what was read: the host was started anew, and its clock.
func (r *replay) sweep(s signals.Sample, begins bool) {
	anew := begins && s.AtUs+ForgetAfterUs < r.newest
	r.newest = max(r.newest, s.AtUs)
	if !anew && r.newest < r.swept+sweepUs {
		return
	}
	for cookie, of := range r.sockets {
		if anew || cookie != s.Cookie && r.newest > of.atUs+ForgetAfterUs {
			r.end(cookie)
		}
	}
	if anew {
		r.newest = s.AtUs
	}
	r.swept = r.newest
}

// of is the socket that a sample is of.
func (r *replay) of(s signals.Sample, newPolicy func() Policy) *replayed {
	to, ok := r.sockets[s.Cookie]
	begins := !ok || s.IntervalUs == 0 || s.AtUs > to.atUs+ForgetAfterUs
	r.sweep(s, begins)
	if begins {
		r.end(s.Cookie)
		to = &replayed{policy: newPolicy()}
		r.sockets[s.Cookie] = to
	}
	return to
}

// Replay gives recorded samples, one JSON object per line, to one policy per cookie, of what anew returns, and out each sample with its choice, and whether that is the first of its socket or another one than before. The
// samples stay as they were recorded: what the choice would have changed is not modelled. Samples of a cookie are in order of
// time, but may be of several sockets, one after the other: a policy begins where the daemon begins one, with a socket's first sample (IntervalUs 0), after its last
// one (Closed) and after ForgetAfterUs; all of them where a socket begins so much before the newest sample, for then the host was started anew, and with a sample that says so (Anew), with nothing that was learned before. Errors begin with the number of the line and a colon, so that a file's name and a colon can be put in front.
func Replay(r io.Reader, anew func() (func() Policy, error), out func(s signals.Sample, c Choice, changed bool)) error {
	newPolicy, err := anew()
	if err != nil {
		return err
	}
	all := replay{sockets: map[uint64]*replayed{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		s, err := parseSample(lines.Bytes())
		if err != nil {
			if cut := lines.Err(); cut != nil { // the line is as far as it could be read
				err = cut
			}
			return fmt.Errorf("%d: %w", n, err)
		}
		if s.Anew {
			all = replay{sockets: map[uint64]*replayed{}}
			if newPolicy, err = anew(); err != nil {
				return fmt.Errorf("%d: %w", n, err)
			}
		}
		to := all.of(s, newPolicy)
		if s.AtUs < to.atUs {
			return fmt.Errorf("%d: at_us %d is before %d, the previous sample of cookie %d", n, s.AtUs, to.atUs, s.Cookie)
		}
		if s.Closed {
			all.end(s.Cookie)
			continue
		}
		to.atUs = s.AtUs
		c := to.policy.Choose(s)
		now := [2]signals.Algorithm{c.Algorithm, c.Bulk}
		out(s, c, to.chosen == nil || *to.chosen != now)
		to.chosen = &now
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%d: read sample: the line has more than %d bytes", n+1, maxLine)
	case err != nil:
		return fmt.Errorf("%d: %w", n+1, err)
	}
	return nil
}

// parseSample reads one sample. A key it does not know is an error: ignored, a misspelt one would read as 0.
func parseSample(line []byte) (signals.Sample, error) {
	var s signals.Sample
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("read sample: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return s, errors.New("read sample: something follows it on the line")
	}
	if s.Cookie == 0 { // cookies count from 1
		return s, errors.New("read sample: there is none on the line, for it has no cookie")
	}
	return s, nil
}

package route

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Verb is what is done to a thing in the kernel.
type Verb uint8

// The verbs. Leave is not to touch what somebody else made and what serves as well.
const (
	Add Verb = iota
	Replace
	Delete
	Leave
)

func (v Verb) String() string { return [...]string{"add", "replace", "delete", "leave"}[v] }

// Step is a change of the kernel's state, done or tried.
type Step struct {
	Verb   Verb
	Object fmt.Stringer // written as ip(8) would
	Reason string
	Err    error // why it could not be done, with advice
}

func (s Step) String() string {
	if s.Err != nil {
		return s.Err.Error()
	}
	return fmt.Sprintf("%v %v: %s", s.Verb, s.Object, s.Reason)
}

type text string

func (t text) String() string { return string(t) }

// advice says what to do about an error of the kernel.
func advice(err error) string {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return ""
	}
	switch errno {
	case unix.EPERM:
		return "; this needs root or the capability CAP_NET_ADMIN"
	case unix.EOPNOTSUPP:
		return "; the kernel lacks SRv6: it needs CONFIG_IPV6_SEG6_LWTUNNEL and CONFIG_LWTUNNEL"
	case unix.EEXIST:
		return "; somebody else's has its place, and plait leaves it: remove it (ip route show table all) or give the exit another table"
	case unix.ENODEV:
		return "; the interface is gone: ip link shows which there are"
	case unix.ENETDOWN:
		return "; the interface is down, or has no carrier: set it up, or name another"
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return "; the next hop is on no network of the interface"
	case unix.EACCES:
		return "; IPv6 is switched off there: see sysctl net.ipv6.conf.all.disable_ipv6 and the interface's"
	case unix.ENOMEM, unix.ENOBUFS:
		return "; the kernel has no memory for it"
	}
	return ""
}

// note writes a step into the journal and returns its error, completed by what was tried and what to do.
func (k *Kernel) note(s Step) error {
	if s.Err != nil {
		s.Err = fmt.Errorf("%v %v: %w%s", s.Verb, s.Object, s.Err, advice(s.Err))
	}
	if k.config.Journal != nil {
		k.config.Journal(s)
	}
	return s.Err
}

// request is a step to be done.
type request struct {
	verb   Verb
	object object
	reason string
}

// failures keeps the first errors of many and counts the rest.
type failures struct {
	first []error
	more  int
}

func (f *failures) add(err error) {
	switch {
	case err == nil:
	case len(f.first) < 5:
		f.first = append(f.first, err)
	default:
		f.more++
	}
}

func (f *failures) err() error {
	if f.more > 0 {
		return errors.Join(append(f.first, fmt.Errorf("and %d more errors", f.more))...)
	}
	return errors.Join(f.first...)
}

// settle turns the kernel's answer to a request into a step.
func settle(r request, err error) Step {
	s := Step{Verb: r.verb, Object: r.object, Reason: r.reason, Err: err}
	_, isRule := r.object.(kernelRule)
	_, isAddress := r.object.(kernelAddress)
	switch {
	case err == nil:
	case r.verb == Delete && (errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV)):
		s.Err, s.Reason = nil, r.reason+"; it was gone already"
	case r.reason == lost && errors.Is(err, unix.EEXIST): // by plait's own doing since, or the next comparison says whose it is
		s.Verb, s.Err, s.Reason = Leave, nil, "it is there again"
	case r.verb == Add && errors.Is(err, unix.EEXIST) && (isRule || isAddress):
		s.Verb, s.Err, s.Reason = Leave, nil, "it is there already, made by somebody else"
		if isAddress {
			s.Reason += "; without preferred_lft 0, connections that do not ask for it may come to have it"
		}
	}
	return s
}

// crowded is how many routes the journal has one by one. Of more with which the same is done at once it has one line: a full table is a million.
const crowded = 100

// crowd is what is done with many routes at once.
type crowd struct {
	verb   Verb
	table  uint32
	reason string
}

// tally counts a crowd: how many are still to come, and how many it was done with.
type tally struct {
	left, done int
	first      netip.Prefix
}

// crowdOf returns the crowd of a route; of other things, none.
func crowdOf(r request) crowd {
	if route, is := r.object.(kernelRoute); is {
		return crowd{r.verb, route.table, r.reason}
	}
	return crowd{}
}

// crowds counts the routes among requests, by what is done with them, where they are many.
func crowds(requests []request) map[crowd]*tally {
	out := map[crowd]*tally{}
	if len(requests) <= crowded {
		return out
	}
	for _, r := range requests {
		c := crowdOf(r)
		if out[c] == nil {
			out[c] = &tally{}
		}
		out[c].left++
	}
	maps.DeleteFunc(out, func(c crowd, t *tally) bool { return c.table == 0 || t.left <= crowded })
	return out
}

// learn keeps what an answer says of the kernel: a place that is taken, which its owner may leave without an event, or that something is wrong which may pass.
func (k *Kernel) learn(r request, s Step, err error) {
	route, is := r.object.(kernelRoute)
	switch {
	case is && r.verb == Add && s.Verb == Add && errors.Is(err, unix.EEXIST):
		k.taken[route.place] = true
	case is && err == nil:
		delete(k.taken, route.place)
	case s.Err != nil:
		k.lacking = true
	}
}

// told notes what became of a request; of a crowd, when it was the last one.
func (k *Kernel) told(r request, err error, many map[crowd]*tally) error {
	s, c := settle(r, err), crowdOf(r)
	k.learn(r, s, err)
	t := many[c]
	if t == nil {
		if s.Verb != Leave {
			delete(k.left, r.object)
		} else if _, is := r.object.(kernelRoute); !is {
			if k.left[r.object] { // at each comparison again, and nothing to be done
				return nil
			}
			k.left[r.object] = true
		}
		return k.note(s)
	}
	var failed error
	if s.Err != nil || s.Verb != r.verb || s.Reason != r.reason {
		failed = k.note(s)
	} else if t.done++; t.done == 1 {
		t.first = r.object.(kernelRoute).prefix()
	}
	if t.left--; t.left == 0 && t.done > 0 {
		_ = k.note(Step{Verb: c.verb, Object: text(fmt.Sprintf("%d routes in table %d, the first %v", t.done, c.table, t.first)), Reason: c.reason}) // it has no error
	}
	return failed
}

// carry carries out requests in their order, and all of them: one that fails stops no other.
func (k *Kernel) carry(requests []request) error {
	var f failures
	many := crowds(requests)
	buffer, messages := make(body, 0, min(len(requests), atOnce)*100), make([]netlink.Message, 0, min(len(requests), atOnce))
	for part := range slices.Chunk(requests, atOnce) {
		buffer, messages = buffer[:0], messages[:0]
		for _, r := range part {
			m := r.object.request(buffer[len(buffer):], r.verb)
			buffer, messages = append(buffer, m.Data...), append(messages, m)
		}
		errs, err := k.route.transact(messages)
		if err != nil {
			f.add(err)
			break
		}
		for i, r := range part {
			f.add(k.told(r, errs[i], many))
		}
	}
	return f.err()
}

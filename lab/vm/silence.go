package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// maxSilence is for how long the emulator of a guest that says nothing may compute, or sleep, before the guest is taken for hanging. The agent speaks every virtual
// second, which is 10^9 instructions: seconds of one core. On a host that gives the emulator little of a core, or none, silence may last as long as it likes.
var maxSilence = 15 * time.Minute

// looks at the emulator there are in maxSilence.
const looks = 15

// use is what a process has had of the host so far: computed is its processor time; awake says that a thread of it runs now, or would if the host let it.
type use struct {
	computed time.Duration
	awake    bool
}

// silence is how long a guest has said nothing.
type silence struct {
	heard  int           // lines, at the last look
	spoke  time.Duration // when that changed
	then   time.Duration // computed by then
	before time.Duration // computed by the last look
	woke   time.Duration // when it was seen awake last
}

// over is given the time, how many lines were heard and what the emulator has used by now. It says why the guest hangs, if it does.
func (s *silence) over(now time.Duration, heard int, u use) string {
	if heard != s.heard {
		*s = silence{heard: heard, spoke: now, then: u.computed, before: u.computed, woke: now}
		return ""
	}
	if u.awake || u.computed-s.before > maxSilence/looks/100 { // one that waits for nothing wakes up, too
		s.woke = now
	}
	s.before = u.computed
	why := fmt.Sprintf("it said nothing for %v, in which the emulator computed for %v", (now - s.spoke).Round(time.Millisecond), u.computed-s.then)
	switch {
	case u.computed-s.then >= maxSilence:
		return why
	case now-s.woke >= maxSilence:
		return why + " and otherwise slept"
	}
	return ""
}

// watch gives up a guest that hangs.
func watch(ctx context.Context, pid int, heard func() int, giveUp func(error)) {
	began, s := time.Now(), silence{}
	tick := time.NewTicker(maxSilence / looks)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		u, err := used(pid)
		if err != nil { // it has ended, which others see
			return
		}
		if why := s.over(time.Since(began), heard(), u); why != "" {
			giveUp(&Crash{why})
			return
		}
	}
}

// used is what a process has used.
func used(pid int) (use, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	_, computed, err := readStat(filepath.Join(dir, "stat"))
	if err != nil {
		return use{}, err
	}
	u := use{computed: computed}
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	for _, t := range threads {
		state, _, gone := readStat(filepath.Join(dir, "task", t.Name(), "stat"))
		u.awake = u.awake || gone == nil && state != 'S'
	}
	return u, err
}

// readStat reads the state and the processor time of a process or thread (proc_pid_stat(5)).
func readStat(path string) (state byte, computed time.Duration, err error) {
	const userTime, systemTime, ticks = 11, 12, 100 // behind the state; a second's
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the name may have anything in it
	if len(fields) <= systemTime {
		return 0, 0, fmt.Errorf("read %s: %q", path, text)
	}
	user, err := strconv.ParseInt(string(fields[userTime]), 10, 64)
	system, failed := strconv.ParseInt(string(fields[systemTime]), 10, 64)
	return fields[0][0], time.Duration(user+system) * time.Second / ticks, errors.Join(err, failed)
}

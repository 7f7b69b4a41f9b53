package vm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake puts a shell script in the emulator's place. It speaks as QEMU's monitor does; what it does once the machine runs is
// given: descriptor 3 is the guest's output, 4 its console.
func fake(t *testing.T, runs string) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
printf 'QEMU monitor\r\n(qemu) '
while read -r request; do
	printf '%s\033[K\r\n' "$request"
	case $request in
	'info cpus') printf '* CPU #0: thread_id=%d\r\n' $$ ;;
	migrate_incoming*) [ -z "$BROKEN" ] || exit 1 ;;
	'info status') printf 'VM status: paused\r\n' ;;
	cont) printf '(qemu) '; ` + runs + ` ;;
	quit) exit ;;
	esac
	printf '(qemu) '
done
`
	if err := os.WriteFile(filepath.Join(dir, Emulator), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", t.TempDir())
	t.Cleanup(func() {
		if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

func TestResume(t *testing.T) {
	fake(t, `echo one >&3; echo two >&3; echo hello >&4; exit 67`)
	var lines []string
	var console strings.Builder
	err := Resume(t.Context(), "", nil, Options{Console: &console}, func(b []byte) { lines = append(lines, string(b)) })
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines, " "); got != "one two" || console.String() != "hello\n" {
		t.Errorf("output %q, console %q", got, &console)
	}
}

func TestResumeEnds(t *testing.T) {
	for name, test := range map[string]struct {
		runs  string
		crash bool
		want  string
	}{
		"agent panics":  {`echo "panic: no such link" >&4; echo "Kernel panic - not syncing" >&4; exit`, true, "panic: no such link"},
		"kernel panics": {`echo "[ 1.2] Kernel panic - not syncing: Fatal exception" >&4; exit`, true, "Fatal exception"},
		"goes on after": {`echo "[ 1.2] Kernel panic - not syncing: Fatal exception" >&4; exec sleep 60`, true, "Fatal exception"},
		"hangs":         {`exec sleep 60`, true, "and otherwise slept"},
		"loops":         {`while :; do :; done`, true, "it said nothing for "},
		"emulator ends": {`echo "cannot set up guest memory" >&2; exit 1`, false, "cannot set up guest memory"},
	} {
		t.Run(name, func(t *testing.T) {
			fake(t, test.runs)
			defer func(silence, words time.Duration) { maxSilence, lastWordsTime = silence, words }(maxSilence, lastWordsTime)
			if name == "hangs" || name == "loops" {
				maxSilence = 100 * time.Millisecond
			}
			lastWordsTime = time.Second
			err := Resume(t.Context(), "", nil, Options{}, func([]byte) {})
			var crash *Crash
			if err == nil || errors.As(err, &crash) != test.crash || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q in it, crash: %v", err, test.want, test.crash)
			}
		})
	}
}

// Who has a saved machine that cannot be loaded is told which, and what helps.
func TestResumeOfBrokenMachine(t *testing.T) {
	fake(t, "exit 67")
	t.Setenv("BROKEN", "yes")
	err := Resume(t.Context(), "/cache/state/base-x", nil, Options{}, func([]byte) {})
	if err == nil || !strings.Contains(err.Error(), "the machine saved in /cache/state/base-x (remove that, and it is made anew)") {
		t.Errorf("ended with %v", err)
	}
}

// A machine to which the host gives no processor for long has not crashed.
func TestResumeOnSlowHost(t *testing.T) {
	defer func(silence time.Duration) { maxSilence = silence }(maxSilence)
	maxSilence = 400 * time.Millisecond
	fake(t, `(sleep 1; kill -CONT $$) & kill -STOP $$; exit 67`)
	if err := Resume(t.Context(), "", nil, Options{}, func([]byte) {}); err != nil {
		t.Error(err)
	}
}

// TestKilled: what the host's kernel does to the emulator is told as what the host lacks.
func TestKilled(t *testing.T) {
	for signal, want := range map[string]string{
		"BUS":  "write ram: no space left on device; make room there, or set PLAIT_CACHE",
		"KILL": "the emulator was killed, as Linux does with what holds most when memory is short",
	} {
		fake(t, "kill -"+signal+" $$")
		err := Resume(t.Context(), "", nil, Options{}, func([]byte) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", signal, err, want)
		}
		var file *fs.PathError // which is the host's lack, not a run's
		if errors.As(err, &file) != (signal == "BUS") {
			t.Errorf("%s: %T", signal, err)
		}
	}
}

func TestResumeIsInterrupted(t *testing.T) {
	fake(t, `echo started >&3; exec sleep 60`)
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	if err := Resume(ctx, "", nil, Options{}, func([]byte) { stop(why) }); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
}

func TestNoEmulator(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Resume(t.Context(), "", nil, Options{}, func([]byte) {})
	if err == nil || !strings.Contains(err.Error(), "apt-get install qemu-system-x86") {
		t.Errorf("error %v does not say what to install", err)
	}
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"plait.dev/plait/lab/vm"
)

// Who interrupts while the emulator is asked for its version is told that, not that the emulator has ended: a terminal's Ctrl-C does not reach it.
func TestVersionIsInterrupted(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	fake := func(script string) {
		if err := os.WriteFile(filepath.Join(bin, vm.Emulator), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fake(`read -r pid name state parent group rest < /proc/$$/stat; echo "QEMU emulator version $group"`)
	if group, err := emulatorVersion(t.Context()); err != nil || group == fmt.Sprint(syscall.Getpgrp()) {
		t.Errorf("in process group %s, %v", group, err)
	}
	fake("exec sleep 60")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := emulatorVersion(ctx); !errors.Is(err, why) {
		t.Errorf("ended with %v", err)
	}
}

// A cache whose name the emulator could not be told is refused.
func TestCacheName(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	if err := os.WriteFile(filepath.Join(bin, vm.Emulator), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, good := range map[string]bool{"a b": true, "a%$;": true, "a'b": false, "a,b": false, `a"b`: false, `a\b`: false, "a\nb": false} {
		t.Setenv("PLAIT_CACHE", filepath.Join(t.TempDir(), name))
		if _, err := New("test", 1); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

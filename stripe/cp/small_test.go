package cp

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// many is how many small files a tree has ([tree]): on the last rung more than may be open.
func many() int { return rung.Times(110, 1100) }

// BenchmarkSmallFiles copies 10,000 files of up to 8 KB to another process of this host, rsync beside it: time, and CPU time of both sides
// together, which other work on the host disturbs less.
func BenchmarkSmallFiles(b *testing.B) {
	from := filepath.Join(b.TempDir(), "from")
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 10000 {
		dir := filepath.Join(from, fmt.Sprint(i/100))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), random8(r.IntN(8192)), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	shell := filepath.Join(b.TempDir(), "shell")
	if err := os.WriteFile(shell, []byte("#!/bin/sh\nshift\nexec \"$@\"\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		command func(to string) *exec.Cmd
	}{
		{"plait", func(to string) *exec.Cmd { cmd, _ := near(b, from, "host:"+to); return cmd }},
		{"rsync", func(to string) *exec.Cmd { return exec.Command("rsync", "-a", "-e", shell, from, "host:"+to) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			cpu := time.Duration(0)
			for b.Loop() {
				to := b.TempDir()
				cmd := c.command(to)
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
				cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			}
			b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

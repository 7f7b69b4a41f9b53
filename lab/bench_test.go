package lab

import (
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/experiment"
)

// cost is what running an experiment takes. CPU seconds and memory are the emulator's own: unlike the wall clock they say
// the same on a host that does other things.
type cost struct{ wallS, cpuS, rssMiB float64 }

// measured runs an experiment and returns its cost. Peak memory is that of the largest child so far.
func measured(b *testing.B, jobs int, name string, o experiment.Options) cost {
	b.Helper()
	usage := func() (u syscall.Rusage) {
		if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
			b.Fatal(err)
		}
		return u
	}
	cpu := func(u syscall.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }
	before, start := usage(), time.Now()
	for _, c := range runFile(b, jobs, name, o).Cells {
		if c.Invalid != "" {
			b.Fatal(c.Invalid)
		}
	}
	wall, after := time.Since(start), usage()
	return cost{wall.Seconds(), (cpu(after) - cpu(before)).Seconds(), float64(after.Maxrss) / 1024}
}

// warm makes the saved machine, which is no part of what is measured.
func warm(b *testing.B) {
	rung.VM(b)
	runFile(b, 1, "testdata/start.yaml", experiment.Options{})
}

// bench measures an experiment with one machine at a time.
func bench(b *testing.B, name string, set ...string) {
	warm(b)
	var sum cost
	for b.Loop() {
		c := measured(b, 1, name, experiment.Options{Set: set, Seeds: 1})
		sum.wallS, sum.cpuS, sum.rssMiB = sum.wallS+c.wallS, sum.cpuS+c.cpuS, max(sum.rssMiB, c.rssMiB)
	}
	b.ReportMetric(sum.wallS/float64(b.N), "wall-s/op")
	b.ReportMetric(sum.cpuS/float64(b.N), "cpu-s/op")
	b.ReportMetric(sum.rssMiB, "peak-MiB")
}

// From the saved state to the first packets and out again: 2 s.
func BenchmarkStart(b *testing.B) { bench(b, "testdata/start.yaml") }

// 30 s of a TCP flow of 30 Mbit/s over four namespaces: 12 s.
func BenchmarkFlow(b *testing.B) { bench(b, "tcp-single") }

// 100 bursts of 64 KB, one every 2 s: 3 s.
func BenchmarkBursts(b *testing.B) { bench(b, "testdata/bursts.yaml") }

// Eight cells with two machines at a time, compared with one: how many times as fast.
func BenchmarkJobs(b *testing.B) {
	warm(b)
	var one, two float64
	for b.Loop() {
		one += measured(b, 1, "testdata/lossy.yaml", experiment.Options{Seeds: 8}).wallS
		two += measured(b, 2, "testdata/lossy.yaml", experiment.Options{Seeds: 8}).wallS
	}
	b.ReportMetric(one/two, "times-as-fast")
}

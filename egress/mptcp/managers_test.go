package mptcp

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// BenchmarkManagers opens connections that stay, 1,000 a second, each with a further subflow, managed by a Service, by the kernel's own path manager with the same
// address as endpoint, and, without a further subflow, by nobody. It measures what both ends of a connection cost in all: the processes of clients, servers and manager,
// and the kernel's threads. So what the kernel takes for ADD_ADDR and subflows anyway is in all that have them, and the difference is what managing from user space costs.
//
// All is done on one processor, in the name of whoever sends a packet, with priority over what else the machine does. The three take turns.
func BenchmarkManagers(b *testing.B) {
	managers := []*managed{newManaged(b, "plait"), newManaged(b, "kernel"), newManaged(b, "nobody")}
	for b.Loop() {
		for _, m := range managers {
			m.round()
		}
	}
	for _, m := range managers {
		b.ReportMetric(median(m.all), m.name+"-us/connection")
	}
	b.ReportMetric(median(managers[0].all)/median(managers[1].all), "plait/kernel")
	b.ReportMetric(median(managers[0].process), "plait-process-us/connection")
	b.ReportMetric(0, "ns/op")
}

// managed is a client and a server whose connections somebody manages, and what a connection cost in each round, in microseconds of processor time.
type managed struct {
	*world
	name         string
	all, process []float64
}

func newManaged(b *testing.B, name string) *managed {
	m := &managed{world: newWorld(b, ""), name: name}
	m.run("ip", "netns", "exec", m.client, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535")
	m.run("ip", "netns", "exec", m.server, "sysctl", "-qw", "net.mptcp.add_addr_timeout=0")
	if name != "plait" {
		m.run("ip", "netns", "exec", m.server, "sysctl", "-qw", "net.mptcp.pm_type=0")
	}
	if name == "kernel" {
		m.run("ip", "-n", m.server, "mptcp", "endpoint", "add", exitAddr(1, false).String(), "dev", "s1", "signal")
	}
	return m
}

func (m *managed) round() {
	m.Helper()
	const holders, each, perSecond = 4, 500, 250
	var manager *child
	var before, after report
	if m.name == "plait" {
		manager = m.child(m.server, serviceVariable+"=1", onProcessor(0)...)
		before = manager.report(false)
	}
	joins := m.counter(m.server, joinCounter)
	crowd := m.crowd(holders, each, perSecond, 0)
	threads := threadsUS(m.TB)
	_, sum := open(crowd)
	if m.name != "nobody" {
		m.joined(joins, holders*each)
	}
	sum += threadsUS(m.TB) - threads
	if manager != nil {
		after = manager.report(true)
		m.process = append(m.process, (after.cpu-before.cpu)/(holders*each))
	}
	m.all = append(m.all, (sum+after.cpu-before.cpu)/(holders*each))
	for _, c := range crowd {
		c.end()
	}
}

// threadsUS is the processor time of the kernel's threads that do networking's work on the first processor.
func threadsUS(t testing.TB) (us float64) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(comm), "kworker/0:") && !strings.HasPrefix(string(comm), "ksoftirqd/0") {
			continue // or it ended meanwhile
		}
		var ns float64
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(name), "schedstat"))
		if err == nil {
			_, err = fmt.Sscan(string(stat), &ns)
		}
		if err != nil {
			t.Fatal(err)
		}
		us += ns / 1000
	}
	return us
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

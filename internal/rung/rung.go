// Package rung says how far up the ladder of tests this run climbs. There are three rungs:
//
//	pure   no root, no kernel state, seconds               go test ./...
//	netns  network namespaces of this machine, as root     PLAIT_TEST=netns go test ./...
//	vm     experiments in the lab's virtual machine too    PLAIT_TEST=vm go test ./...
//
// A test above the first rung calls [Netns] or [VM] in its first line. One that needs nothing but time calls [Long], or does less unless [Full]
// says otherwise: the first rung is climbed after every change. Only tests import this package.
package rung

import (
	"os"
	"testing"
)

// Netns skips the test unless PLAIT_TEST is netns or vm, and it runs as root.
func Netns(tb testing.TB) {
	tb.Helper()
	switch os.Getenv("PLAIT_TEST") {
	case "netns", "vm":
	default:
		tb.Skip("makes network namespaces; run it with: sudo PLAIT_TEST=netns scripts/go test -run '^" + tb.Name() + "$' ./...")
	}
	if os.Geteuid() != 0 {
		tb.Skip("needs root to make network namespaces")
	}
}

// Full reports whether this run takes all the time it needs, as that of the last rung does: what is random is tried more often.
func Full() bool { return os.Getenv("PLAIT_TEST") == "vm" }

// Times is how often a test tries what is random, or how much it moves: first on the first rung, full where this run takes all the time it needs.
func Times(first, full int) int {
	if Full() {
		return full
	}
	return first
}

// Long skips a test that computes or waits for seconds and needs nothing else, unless this run takes all the time it needs ([Full]).
func Long(tb testing.TB) {
	tb.Helper()
	if !Full() {
		tb.Skip("takes long; run it with: PLAIT_TEST=vm scripts/go test -run '^" + tb.Name() + "$' ./...")
	}
}

// VM skips the test unless PLAIT_TEST is vm. A missing emulator or image is then an error of the test, not a skip.
func VM(tb testing.TB) {
	tb.Helper()
	if os.Getenv("PLAIT_TEST") != "vm" {
		tb.Skip("starts virtual machines; run it with: PLAIT_TEST=vm scripts/go test -run '^" + tb.Name() + "$' ./...")
	}
}

// Package sshtest lets a test binary be ssh and the far side of package ssh, too. Only tests import it.
package sshtest

import (
	"fmt"
	"os"
	"testing"

	"plait.dev/plait/stripe/ssh"
)

// Main is for TestMain, with ssh.Options.Command the test binary itself: it runs the tests or, started as ssh, the far side with what handler
// makes.
func Main(m *testing.M, handler func() ssh.Handler) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "-G": // ssh's configuration of a host: there is none
		os.Exit(1)
	case "-T":
		if err := ssh.Serve(os.Stdin, os.Stdout, handler()); err != nil {
			fmt.Fprintln(os.Stderr, "far:", err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

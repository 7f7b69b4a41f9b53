// Package sshtest lets a test binary be ssh and the far side of package ssh, too. Only tests import it.
package sshtest

import (
	"fmt"
	"os"
	"path/filepath"
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

// fragile starts $FAR as ssh does, and ends when a file "cut" is made. What it has started goes on, and its input ends.
const fragile = `[ "$1" = -T ] || exit 1
cd "${0%/*}" && mkfifo in out err && exec 3<&0
$FAR "$@" < in > out 2> err 3<&- & echo $! > far
cat <&3 > in & a=$!
cat < out & b=$!
cat < err >&2 & c=$!
until [ -e cut ]; do sleep 0.05; done
kill $a $b $c`

// Fragile makes an ssh that ends when cut is called, as one whose connection is lost, and a directory where the file "far" has the process it has started: the
// test binary, after the words of prefix.
func Fragile(t testing.TB, prefix string) (command []string, dir string, cut func()) {
	t.Helper()
	dir = t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "ssh"), []byte("FAR='"+prefix+" "+self+"'\n"+fragile), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return []string{"sh", filepath.Join(dir, "ssh")}, dir, func() {
		if err := os.WriteFile(filepath.Join(dir, "cut"), nil, 0o644); err != nil {
			t.Error(err)
		}
	}
}

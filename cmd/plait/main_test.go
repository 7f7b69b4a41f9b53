package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"plait.dev/plait/internal/rung"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"plait": func() { os.Exit(execute(os.Args[1:])) }, "stand-in": standInMain})
}

// The command line as its users meet it, as far as no virtual machine is needed: one story per file.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: func(env *testscript.Env) error {
		env.Setenv("PLAIT_CACHE", env.WorkDir+"/cache")
		plait, err := exec.LookPath("plait") // that is this test
		env.Setenv("PLAIT", plait)
		return err
	}, Condition: func(name string) (bool, error) {
		if name != "full" {
			return false, fmt.Errorf("unknown condition %s", name)
		}
		return rung.Full(), nil
	}, Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status}})
}

// status STATUS COMMAND...: the command's exit status is this one.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status STATUS COMMAND...")
	}
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit status %d, want %s", got, args[0])
	}
}

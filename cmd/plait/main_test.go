package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

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

// What is expected is said of each type of flag that is used; of another one, what the library says.
func TestWrongValue(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Int("int", 0, "")
	flags.Float64("float64", 0, "")
	flags.Bool("bool", false, "")
	flags.Uint("uint", 0, "")
	for name, want := range map[string]string{"int": "expected a whole number", "float64": "expected a number", "bool": "expected true or false", "uint": "invalid syntax"} {
		if err := wrongValue(flags.Parse([]string{"--" + name + "=x"})); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v; want that it ends with %q", name, err, want)
		}
	}
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

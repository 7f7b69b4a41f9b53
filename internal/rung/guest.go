package rung

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Guest runs tests of the package that calls it in the lab's virtual machine, for what few hosts have in their kernel. kernel is one of the lab's ("6.12"), command
// what runs the tests there, as ./tests. They are built of files, of the whole package if there are none. A test that is skipped is a failure.
func Guest(t *testing.T, kernel, command string, files ...string) {
	t.Helper()
	VM(t)
	dir := t.TempDir()
	build := exec.Command("go", append([]string{"test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "tests")}, files...)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	binary, err := os.ReadFile(filepath.Join(dir, "tests"))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err = z.Write(binary); errors.Join(err, z.Close()) != nil {
		t.Fatal(err)
	}
	var steps strings.Builder
	for part := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(packed.Bytes())), 100_000) { // a command has up to 128 KB
		fmt.Fprintf(&steps, "      - echo %s >> /tmp/tests.gz.64\n", part)
	}
	file := filepath.Join(dir, "guest.yaml")
	err = os.WriteFile(file, []byte(`name: guest
group: test
question: What do the tests say there?
kernel: "`+kernel+`"
links:
  line: {ends: [host, neighbour], rate_mbps: 10, delay_ms: 1, queue_packets: 10}
nodes:
  host:
    run:
`+steps.String()+`      - |
        ip link set lo up
        cd /tmp && base64 -d tests.gz.64 | gunzip > tests && chmod +x tests
        `+strings.ReplaceAll(command, "$", "$$")+` > said && grep -q -e '--- PASS' said && ! grep SKIP said || { uname -r; grep -v -e PASS -e === said; exit 1; } >&2
apps:
  probe: {type: ping, from: host, to: neighbour, gap_ms: 1, count: 1}
bounds:
  - {expect: probe.lost_percent == 0, because: the tests ran before}
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	plait := []string{"go", "run", "plait.dev/plait/cmd/plait"}
	if built := os.Getenv("PLAIT_AGENT"); built != "" { // whose machine the lab's tests have booted
		plait = []string{built}
	}
	if out, err := exec.Command(plait[0], append(plait[1:], "lab", "run", file)...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out[max(0, len(out)-3000):]) // the parts of the file are before what the tests say
	}
}

package main

import (
	"bytes"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"x/a"}
{"Action":"run","Package":"x/a","Test":"TestGood"}
{"Action":"output","Package":"x/a","Test":"TestGood","Output":"chatter\n"}
{"Action":"pass","Package":"x/a","Test":"TestGood","Elapsed":7.2}
{"Action":"output","Package":"x/a","Test":"TestVM","Output":"=== RUN   TestVM\n"}
{"Action":"output","Package":"x/a","Test":"TestVM","Output":"    vm_test.go:12: starts virtual machines: PLAIT_TEST=vm\n"}
{"Action":"skip","Package":"x/a","Test":"TestVM","Elapsed":0}
{"Action":"output","Package":"x/a","Output":"PASS\n"}
{"Action":"output","Package":"x/a","Output":"ok  \tx/a\t7.300s\n"}
{"Action":"pass","Package":"x/a","Elapsed":7.3}
{"Action":"output","Package":"x/b","Test":"TestBad","Output":"    b_test.go:3: got 1, want 2\n"}
{"Action":"fail","Package":"x/b","Test":"TestBad","Elapsed":0}
{"Action":"output","Package":"x/b","Output":"FAIL\tx/b\t0.001s\n"}
{"Action":"output","Package":"x/b","Test":"TestStuck","Output":"=== RUN   TestStuck\n"}
{"Action":"output","Package":"x/b","Test":"TestStuck","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"x/b","Elapsed":1}
{"Action":"output","Package":"x/c","Output":"?   \tx/c\t[no test files]\n"}
{"Action":"skip","Package":"x/c","Elapsed":0}
{"ImportPath":"x/d","Action":"build-output","Output":"d.go:1: undefined: y\n"}
FAIL	x/e [setup failed]
`

func TestCopyResults(t *testing.T) {
	var out bytes.Buffer
	skipped, err := copyResults(strings.NewReader(events), &out)
	if err != nil {
		t.Fatal(err)
	}
	want := "    TestGood (7 s)\nok  \tx/a\t7.300s\n    b_test.go:3: got 1, want 2\nFAIL\tx/b\t0.001s\n" +
		"panic: test timed out\nd.go:1: undefined: y\nFAIL\tx/e [setup failed]\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	wantSkip := skip{test{"x/a", "TestVM"}, "starts virtual machines: PLAIT_TEST=vm"}
	if len(skipped) != 1 || skipped[0] != wantSkip {
		t.Errorf("skipped %v, want only %v", skipped, wantSkip)
	}
}

func TestReport(t *testing.T) {
	skipped := []skip{{test{"x/a", "TestOne"}, "slow"}, {test{"x/a", "TestTwo"}, "no KVM"}, {test{"x/a", "TestThree"}, "dull"}}
	list := allowed("# comment about x/a\nx/a TestTwo needs /dev/kvm, which CI lacks\nx/a TestThree\n")
	var out bytes.Buffer
	if n := report(&out, skipped, list); n != 2 {
		t.Errorf("%d skips unearned, want 2: TestOne is not listed, TestThree has no reason", n)
	}
	want := "skipped: x/a TestOne: slow\nskipped (allowed): x/a TestTwo: no KVM\nskipped: x/a TestThree: dull\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

package signals

import (
	"encoding/json"
	"testing"
)

// The numbers are an interface to the kernel half: this list is written out so that reordering the constants fails.
func TestAlgorithmNumbers(t *testing.T) {
	for number, name := range []string{
		"reno", "cubic", "bic", "highspeed", "htcp", "hybla", "scalable", "vegas", "westwood", "bbr", "burst",
	} {
		if got := Algorithm(number).String(); got != name {
			t.Errorf("number %d is %s, want %s", number, got, name)
		}
		got, err := ParseAlgorithm(name)
		if err != nil || int(got) != number {
			t.Errorf("ParseAlgorithm(%q) = %d, %v, want %d", name, got, err, number)
		}
	}
	if n := len(Algorithms()); n != 11 {
		t.Errorf("there are %d algorithms, want 11", n)
	}
}

func TestAlgorithmUnknown(t *testing.T) {
	_, err := ParseAlgorithm("bbr2")
	want := `unknown congestion control "bbr2"; there are reno, cubic, bic, highspeed, htcp, hybla, scalable, vegas, westwood, bbr, burst`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if got := Algorithm(11).String(); got != "algorithm(11)" {
		t.Errorf("number 11 is %s, want algorithm(11)", got)
	}
	if _, err := json.Marshal(Algorithm(11)); err == nil {
		t.Error("number 11 was written, want an error")
	}
}

func TestAlgorithmText(t *testing.T) {
	for _, a := range Algorithms() {
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var got Algorithm
		if err := json.Unmarshal(text, &got); err != nil || got != a {
			t.Errorf("%s was read back as %s, %v", a, got, err)
		}
	}
	got := Hybla
	if err := json.Unmarshal([]byte(`"nope"`), &got); err == nil || got != Hybla {
		t.Errorf("nope was read as %s, %v, want an error and no change", got, err)
	}
}

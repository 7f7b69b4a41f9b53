package traffic

import (
	"strings"
	"testing"
)

const report = `{"start":{"version":"3.18"},"end":{"streams":[{"sender":{"retransmits":3}},{"sender":{"retransmits":4}}],"sum_received":{"bits_per_second":2.5e7}}}`

func TestExtract(t *testing.T) {
	for rule, want := range map[string]float64{
		".end.sum_received.bits_per_second":  2.5e7,
		".end.streams[1].sender.retransmits": 4,
		`"retransmits":(\d+)`:                3,
		`bits_per_second":([\d.e+]+)`:        2.5e7,
	} {
		got, err := extract([]byte(report), rule)
		if err != nil || got != want {
			t.Errorf("%s: %g, %v; want %g", rule, got, err, want)
		}
	}
}

func TestExtractErrors(t *testing.T) {
	for rule, want := range map[string]string{
		".end.sum":               "no key sum",
		".end.streams[2].sender": "no element 2 in streams",
		".end.streams[0].sender": "not a number",
		".end.streams.sender":    "no key sender",
		".start.version":         "not a number",
		".end[":                  "expected .key",
		"retransmits":            "no group",
		"x(y":                    "missing closing",
		"lost (\\d+)":            `bytes of output, which end with "\"sender\":{`,
	} {
		_, err := extract([]byte(report), rule)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", rule, err, want)
		}
	}
	for _, text := range []string{"nan", "-inf", "-1e101"} {
		if _, err := extract([]byte("jitter: "+text+" ms"), `jitter: (\S+)`); err == nil || !strings.Contains(err.Error(), "is not a finite number") {
			t.Errorf("%s: error %v", text, err)
		}
	}
	if _, err := extract([]byte(`{"jitter": 1e101}`), ".jitter"); err == nil || !strings.Contains(err.Error(), "is not a finite number of at most 1e+100") {
		t.Errorf("error %v", err)
	}
	if _, err := extract([]byte("rate 1,5"), `rate (\S+)`); err == nil || err.Error() != `match rate (\S+): "1,5" is not a number` {
		t.Errorf("error %v", err)
	}
	if _, err := extract([]byte("no JSON"), ".end"); err == nil || !strings.Contains(err.Error(), `ends with "no JSON": `) {
		t.Errorf("error %v", err)
	}
}

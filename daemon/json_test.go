package daemon

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// A program goes through a list that is empty, and not through null.
func TestNoNullInStatus(t *testing.T) {
	h := newHost(t)
	text, err := json.Marshal(h.inside(takeAll, new(bytes.Buffer)).Status())
	h.must(err)
	if strings.Contains(string(text), "null") {
		t.Errorf("got %s", text)
	}
}

package traffic

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestContentArrivesWhole(t *testing.T) {
	var sent bytes.Buffer
	const total = 3*contentPeriod + 17
	if err := send(&sent, 0, 1000); err != nil {
		t.Fatal(err)
	}
	if err := send(&sent, 1000, total-1000); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]io.Reader{"whole": bytes.NewReader(sent.Bytes()), "by bytes": iotest.OneByteReader(bytes.NewReader(sent.Bytes())), "by halves": iotest.HalfReader(bytes.NewReader(sent.Bytes()))} {
		if n, err := io.Copy(io.Discard, &checked{from: from}); n != total || err != nil {
			t.Errorf("%s: %d of %d bytes, %v", name, n, total, err)
		}
	}
}

func TestContentSpoiltIsFound(t *testing.T) {
	var sent bytes.Buffer
	const segment = 1428
	if err := send(&sent, 0, 200*segment); err != nil {
		t.Fatal(err)
	}
	whole, at := sent.Bytes(), 100*segment
	swapped := slices.Concat(whole[:at], whole[at+segment:at+2*segment], whole[at:at+segment], whole[at+2*segment:])
	zeroed := slices.Concat(whole[:at], make([]byte, segment), whole[at+segment:])
	for name, spoilt := range map[string][]byte{
		"lost": slices.Concat(whole[:at], whole[at+segment:]), "repeated": slices.Concat(whole[:at], whole[at-segment:]), "out of order": swapped, "zeros": zeroed,
	} {
		if _, err := io.Copy(io.Discard, &checked{from: bytes.NewReader(spoilt)}); err == nil || !strings.Contains(err.Error(), "are wrong") {
			t.Errorf("a segment %s: %v", name, err)
		}
	}
}

func TestContentIsThatOfItsOffset(t *testing.T) {
	for _, offset := range []int64{0, 1, contentPeriod - 11, contentPeriod - 1, contentPeriod, 75*contentPeriod - 11} {
		for i, b := range contentAt(offset, writeBytes) {
			if want := content[(offset+int64(i))%contentPeriod]; b != want {
				t.Fatalf("byte %d from %d on is %d, not %d", i, offset, b, want)
			}
		}
	}
}

package measure

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
)

// tracePage makes a page of a trace ring buffer that begins at the time.
func tracePage(at uint64, flags uint64, entries ...[]byte) []byte {
	data := slices.Concat(entries...)
	page := binary.NativeEndian.AppendUint64(nil, at)
	page = binary.NativeEndian.AppendUint64(page, uint64(len(data))|flags)
	return append(page, append(data, make([]byte, 64)...)...)
}

// traceEntry makes a header word and what follows it.
func traceEntry(kind, delta uint32, rest ...[]byte) []byte {
	return append(u32(kind|delta<<5), slices.Concat(rest...)...)
}

func TestTraceEvents(t *testing.T) {
	type event struct {
		at   uint64
		data string
	}
	var got []event
	page := tracePage(1000, 0,
		traceEntry(1, 5, []byte("abcd")),
		traceEntry(ringTimeExtend, 3, u32(2)), // 2 << 27 | 3
		traceEntry(2, 0, []byte("efghijkl")),
		traceEntry(ringPadding, 1, u32(8), make([]byte, 4)), // a discarded event
		traceEntry(0, 7, u32(4+4), []byte("long")),
		traceEntry(ringTimeStamp, 9, u32(100)),
		traceEntry(1, 1, []byte("last")),
		traceEntry(ringPadding, 0))
	if err := traceEvents(page, func(at uint64, data []byte) { got = append(got, event{at, string(data)}) }); err != nil {
		t.Fatal(err)
	}
	extended := uint64(1000 + 5 + 2<<27 + 3)
	want := []event{{1005, "abcd"}, {extended, "efghijkl"}, {extended + 1 + 7, "long"}, {100<<27 + 9 + 1, "last"}}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestTraceEventsErrors(t *testing.T) {
	none := func(uint64, []byte) {}
	if err := traceEvents(tracePage(0, ringMissedEvents), none); !errors.Is(err, errTraceLost) {
		t.Errorf("a page after lost events: %v", err)
	}
	for _, bad := range [][]byte{make([]byte, 8), tracePage(0, 0, traceEntry(28, 0)), tracePage(0, 0, traceEntry(0, 0, u32(4000))), tracePage(0, 0, traceEntry(0, 0, u32(0)))} {
		if traceEvents(bad, none) == nil {
			t.Errorf("% x was accepted", bad)
		}
	}
}

func FuzzTraceEvents(f *testing.F) {
	f.Add(tracePage(1, 0, traceEntry(1, 5, []byte("abcd")), traceEntry(0, 7, u32(8), []byte("long"))))
	f.Fuzz(func(t *testing.T, page []byte) {
		total := 0
		_ = traceEvents(page, func(_ uint64, data []byte) { total += len(data) }) // must not panic
		if total > len(page) {
			t.Errorf("%d bytes of events in a page of %d", total, len(page))
		}
	})
}

const testFormat = `name: tcp_test
ID: 2273
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:__u8 saddr[28];	offset:8;	size:28;	signed:0;
	field:const void * skaddr;	offset:40;	size:8;	signed:0;
	field:__u8 cong_state;	offset:48;	size:1;	signed:0;

print fmt: "state=%u", REC->cong_state
`

func TestTraceFormat(t *testing.T) {
	f, err := parseTraceFormat(testFormat, "skaddr", "cong_state")
	if err != nil || f.id != 2273 || f.fields["saddr"] != (traceField{8, 28}) {
		t.Fatalf("%+v, %v", f, err)
	}
	event := make([]byte, 49)
	event[48] = 4
	binary.NativeEndian.PutUint64(event[40:], 1<<60)
	if f.get(event, "skaddr") != 1<<60 || f.get(event, "cong_state") != 4 || f.get(event, "err") != 0 || f.get(event[:48], "cong_state") != 0 {
		t.Error("fields differ")
	}
	if _, err := parseTraceFormat(testFormat, "skaddr", "snd_una"); err == nil || !strings.Contains(err.Error(), "snd_una") {
		t.Errorf("a missing field: %v", err)
	}
}

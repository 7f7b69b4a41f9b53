package measure

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// attr makes one netlink attribute, padded.
func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func TestAttributes(t *testing.T) {
	b := append(attr(7|unix.NLA_F_NESTED, []byte{1, 2, 3}), attr(8, u32(5))...)
	var kinds []uint16
	var values []byte
	for kind, value := range attributes(append(b, 3, 0, 0, 0)) { // the last one is shorter than its own header
		kinds, values = append(kinds, kind), append(values, value...)
	}
	if len(kinds) != 2 || kinds[0] != 7 || kinds[1] != 8 || !bytes.Equal(values, append([]byte{1, 2, 3}, u32(5)...)) {
		t.Errorf("kinds %v, values %v", kinds, values)
	}
}

// answer makes a netlink message that answers request number seq.
func answer(kind, flags uint16, seq uint32, data []byte) []byte {
	b := request(kind, flags, data)
	binary.NativeEndian.PutUint32(b[8:], seq)
	return b
}

func TestMessages(t *testing.T) {
	c := &conn{seq: 5}
	for _, test := range []struct {
		name     string
		datagram []byte
		done     bool
		err      error
		messages string
	}{
		{"single", answer(100, 0, 5, []byte("abcd")), true, nil, "abcd"},
		{"part of a dump", append(answer(100, unix.NLM_F_MULTI, 5, []byte("abcd")), answer(100, unix.NLM_F_MULTI, 5, []byte("efgh"))...), false, nil, "abcdefgh"},
		{"end of a dump", answer(unix.NLMSG_DONE, unix.NLM_F_MULTI, 5, u32(0)), true, nil, ""},
		{"answer to another request", answer(100, 0, 4, []byte("abcd")), false, nil, ""},
		{"acknowledgement", answer(unix.NLMSG_ERROR, 0, 5, u32(0)), true, nil, ""},
		{"error", answer(unix.NLMSG_ERROR, 0, 5, u32(uint32(0xffffffff-uint32(unix.ENODEV)+1))), true, unix.ENODEV, ""},
	} {
		var got []byte
		done, err := c.messages(test.datagram, func(data []byte) error { got = append(got, data...); return nil })
		if done != test.done || !errors.Is(err, test.err) || string(got) != test.messages {
			t.Errorf("%s: done %v, error %v, messages %q", test.name, done, err, got)
		}
	}
	if _, err := c.messages(u32(3<<16 | 40)[:4], nil); err != nil {
		t.Errorf("a rest shorter than a header: %v", err)
	}
	if _, err := c.messages(append(u32(400), make([]byte, 12)...), nil); err == nil {
		t.Error("a message longer than its datagram was accepted")
	}
}

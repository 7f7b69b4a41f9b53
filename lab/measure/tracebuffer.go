package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Entry types of the kernel's trace ring buffer (include/linux/ring_buffer.h) and flags of a page's commit field
// (kernel/trace/ring_buffer.c).
const (
	ringPadding    = 29
	ringTimeExtend = 30
	ringTimeStamp  = 31

	ringPageHeader    = 16
	ringCommitMask    = 1<<27 - 1
	ringMissedEvents  = 1 << 31
	ringTimeDeltaBits = 27
)

var errTraceLost = errors.New("the kernel's trace buffer overflowed")

// traceEvents calls each for every event of one page of a trace ring buffer, with its time in ns of the trace clock.
func traceEvents(page []byte, each func(at uint64, event []byte)) error {
	if len(page) < ringPageHeader {
		return fmt.Errorf("read trace page: %d bytes", len(page))
	}
	at, commit := binary.NativeEndian.Uint64(page), binary.NativeEndian.Uint64(page[8:])
	if commit&ringMissedEvents != 0 {
		return errTraceLost
	}
	b := page[ringPageHeader:]
	b = b[:min(uint64(len(b)), commit&ringCommitMask)]
	for len(b) >= 4 {
		head := binary.NativeEndian.Uint32(b)
		kind, delta, size := head&31, uint64(head>>5), 4
		var word uint32 // the second one: the length of a long event, or the upper part of a time
		if kind == 0 || kind >= ringPadding {
			if len(b) < 8 {
				return nil // padding to the end of the page
			}
			word = binary.NativeEndian.Uint32(b[4:])
		}
		switch kind {
		case ringPadding:
			if delta == 0 {
				return nil
			}
			size = 4 + int(word)
		case ringTimeExtend:
			delta, size = delta|uint64(word)<<ringTimeDeltaBits, 8
		case ringTimeStamp: // absolute, without the 5 highest bits, which the page's time has
			at = at&^(1<<59-1) | delta | uint64(word)<<ringTimeDeltaBits
			delta, size = 0, 8
		case 0:
			size = 4 + int(word)
		default:
			size = 4 + 4*int(kind)
		}
		if size > len(b) || kind == 0 && size < 8 {
			return fmt.Errorf("read trace page: entry of %d bytes in %d", size, len(b))
		}
		at += delta
		if kind == 0 {
			each(at, b[8:size])
		} else if kind < ringPadding {
			each(at, b[4:size])
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return nil
}

// traceFormat is where the fields of an event type are.
type traceFormat struct {
	id     uint16
	fields map[string]traceField
}

type traceField struct{ offset, size int }

var (
	formatID    = regexp.MustCompile(`(?m)^ID: (\d+)$`)
	formatField = regexp.MustCompile(`(?m)^\tfield:[^;]*?(\w+)(?:\[\w*\])?;\toffset:(\d+);\tsize:(\d+);`)
)

// parseTraceFormat reads an event's format file; all the named fields must be there.
func parseTraceFormat(text string, need ...string) (traceFormat, error) {
	f := traceFormat{fields: map[string]traceField{}}
	id := formatID.FindStringSubmatch(text)
	if id == nil {
		return f, errors.New("read trace format: no ID")
	}
	n, err := strconv.ParseUint(id[1], 10, 16)
	if err != nil {
		return f, fmt.Errorf("read trace format: %w", err)
	}
	f.id = uint16(n)
	for _, m := range formatField.FindAllStringSubmatch(text, -1) {
		offset, _ := strconv.Atoi(m[2]) // digits, by the expression
		size, _ := strconv.Atoi(m[3])
		f.fields[m[1]] = traceField{offset, size}
	}
	var missing []string
	for _, name := range need {
		if _, ok := f.fields[name]; !ok {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return f, fmt.Errorf("read trace format: this kernel's event has no field %s", strings.Join(missing, ", "))
	}
	return f, nil
}

// get reads an unsigned field of 1, 2, 4 or 8 bytes; 0 if the event has no such field or ends before it.
func (f traceFormat) get(event []byte, name string) uint64 {
	field := f.fields[name]
	if field.offset+field.size > len(event) {
		return 0
	}
	b := event[field.offset:]
	switch field.size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	case 8:
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}

package link

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

const (
	// opportunityBytes is what one line of a recording carries: mahimahi counts 1504 bytes, of which 4 are the header
	// of its TUN device.
	opportunityBytes = 1500
	// maxOpportunities bounds the memory a recording may take: 16 MB here, and in the guest, which gets it as text and holds it in two
	// processes, most of what two of them leave. 8 minutes at 100 Mbit/s.
	maxOpportunities = 4_000_000
)

// ParseTrace reads a recording in mahimahi format, plain or gzip: one time in milliseconds per line, in order, each an
// opportunity to deliver 1500 bytes. The last one is also the length of the recording and must not be 0. Errors begin
// with name, and with the line if it is one line's fault.
func ParseTrace(r io.Reader, name string) ([]uint32, error) {
	b := bufio.NewReader(r)
	if magic, _ := b.Peek(2); string(magic) == "\x1f\x8b" {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("%s: read gzip header: %w", name, err)
		}
		b = bufio.NewReader(z)
	}
	var times []uint32
	lines := bufio.NewScanner(b)
	for lines.Scan() {
		at, err := parseOpportunity(lines.Bytes(), times)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, len(times)+1, err)
		}
		times = append(times, at)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: read line: %w", name, len(times)+1, err)
	}
	if err := checkTrace(times); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return times, nil
}

// parseOpportunity reads one line that follows those in before.
func parseOpportunity(line []byte, before []uint32) (uint32, error) {
	text := string(bytes.TrimSpace(line))
	at, err := strconv.ParseUint(text, 10, 32)
	switch {
	case text == "":
		return 0, errors.New("empty line, want a time in milliseconds")
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%.40q is too large, want a time in milliseconds up to %d", text, uint32(1<<32-1))
	case err != nil:
		return 0, fmt.Errorf("%.40q is not a time in whole milliseconds", text)
	case len(before) > 0 && uint32(at) < before[len(before)-1]:
		return 0, fmt.Errorf("%d ms comes after %d ms, times must not go back", at, before[len(before)-1])
	case len(before) == maxOpportunities:
		return 0, fmt.Errorf("more than %d lines, cut the recording", maxOpportunities)
	}
	return uint32(at), nil
}

func checkTrace(times []uint32) error {
	if len(times) == 0 {
		return errors.New("empty recording, want one time in milliseconds per line")
	}
	if times[len(times)-1] == 0 {
		return errors.New("recording of length 0, its last time must be at least 1 ms")
	}
	return nil
}

// TraceConfig describes a link that replays a recording.
type TraceConfig struct {
	// OpportunitiesMs is the recording, as ParseTrace gives it.
	OpportunitiesMs []uint32
	// Start is the place in the recording at time 0, modulo its length.
	Start time.Duration
	// Queue is the limit of the drop-tail queue.
	Queue QueueLimit
}

// Trace is a drop-tail queue in front of a link that delivers at recorded opportunities only, 1500 bytes of IP packets
// each, and starts over at the end of the recording. It follows mahimahi (Netravali et al., USENIX ATC 2015,
// src/packet/link_queue.cc).
type Trace struct{ *slotted }

// NewTrace returns the link. An empty recording or one of length 0 is an error.
func NewTrace(c TraceConfig) (*Trace, error) {
	if err := checkTrace(c.OpportunitiesMs); err != nil {
		return nil, err
	}
	last := c.OpportunitiesMs[len(c.OpportunitiesMs)-1]
	replay := &replay{timesMs: c.OpportunitiesMs, length: time.Duration(last) * time.Millisecond}
	replay.base = -(c.Start % replay.length)
	return &Trace{newSlotted(replay, c.Queue)}, nil
}

// replay is a recording, over and over.
type replay struct {
	timesMs []uint32
	length  time.Duration
	base    time.Duration // when this round began
	i       int
}

func (r *replay) next() (at time.Duration, bytes int) {
	if r.i == len(r.timesMs) {
		r.i = 0
		r.base += r.length
	}
	at = r.base + time.Duration(r.timesMs[r.i])*time.Millisecond
	r.i++
	return at, opportunityBytes
}

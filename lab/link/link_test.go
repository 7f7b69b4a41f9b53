package link

import (
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// exit is a packet that came out: when, and its number.
type exit struct {
	at     time.Duration
	number byte
}

// numbered is a packet that can be told from others.
func numbered(number byte, bytes int) Packet { return Packet{Bytes: bytes, Data: []byte{number}} }

// exits runs m until nothing more comes out, receiving each packet at the time the model names.
func exits(m Model) []exit {
	var got []exit
	for {
		at, ok := m.Next()
		if !ok {
			return got
		}
		if p, ok := m.Receive(at); ok {
			got = append(got, exit{at, p.Data[0]})
		}
	}
}

func wantExits(t *testing.T, m Model, want ...exit) {
	t.Helper()
	if got := exits(m); !slices.Equal(got, want) {
		t.Errorf("packets came out at\n%v, want\n%v", got, want)
	}
}

func wantQueued(t *testing.T, m Model, packets, bytes int, dropped int64) {
	t.Helper()
	p, b := m.Queued()
	if p != packets || b != bytes || m.Dropped() != dropped {
		t.Errorf("%d packets, %d bytes queued and %d dropped, want %d, %d and %d", p, b, m.Dropped(), packets, bytes, dropped)
	}
}

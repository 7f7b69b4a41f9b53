package stripe

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// All links fall silent without a sign, for good: no event ends the paths, and TCP would keep them for a quarter of an hour.
func TestSilentForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
		defer s.close()
		s.wires[0].freeze()
		start := time.Now()
		_ = s.near.SetReadDeadline(start.Add(10 * time.Minute))
		_, err := s.near.Read(make([]byte, 1))
		if took := time.Since(start); !errors.Is(err, ErrNoPath) || took < defaultPatience || took > defaultPatience+pathDead+10*time.Second {
			t.Errorf("read ended after %v: %v", took, err)
		}
	})
}

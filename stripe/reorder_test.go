package stripe

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"plait.dev/plait/internal/rung"
)

// slowReorder is the oracle: a map.
type slowReorder struct {
	chunks map[uint64][]byte
	next   uint64
}

func (s *slowReorder) take() (out []byte) {
	for s.chunks[s.next] != nil {
		out = append(out, s.chunks[s.next]...)
		s.next++
	}
	return out
}

func TestReorderAgainstOracle(t *testing.T) {
	for seed := range uint64(rung.Times(5, 100)) {
		r := rand.New(rand.NewPCG(seed, 2))
		slow := slowReorder{chunks: map[uint64][]byte{}}
		var fast reorder
		window := 1 + r.IntN(100)
		fast.grow(window)
		var got, want []byte
		content := func(n uint64) []byte { return bytes.Repeat([]byte{byte(n)}, 1+int(n*7%50)) }
		for range 2000 {
			n := fast.read + uint64(r.IntN(window+2))
			_, err := fast.insert(n, content(n))
			if (n >= fast.limit) != errors.Is(err, errBeyondLimit) {
				t.Fatalf("seed %d: chunk %d with limit %d: %v", seed, n, fast.limit, err)
			}
			if err == nil {
				slow.chunks[n] = content(n)
			}
			if r.IntN(3) == 0 {
				buf := make([]byte, r.IntN(200))
				k, _ := fast.take(buf)
				got = append(got, buf[:k]...)
				window = min(maxWindow, window+r.IntN(2))
				fast.grow(window)
			}
			want = append(want, slow.take()...)
			for i := range uint64(63) {
				if n := slow.next + 1 + i; fast.beyond()>>i&1 != 0 != (slow.chunks[n] != nil) {
					t.Fatalf("seed %d: %d is missing, and of chunk %d it tells the contrary", seed, slow.next, n)
				}
			}
			if fast.next != slow.next {
				t.Fatalf("seed %d: %d is missing first, not %d", seed, slow.next, fast.next)
			}
		}
		buf := make([]byte, 1<<20)
		k, _ := fast.take(buf)
		if got = append(got, buf[:k]...); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: read %d bytes, not the %d of the oracle", seed, len(got), len(want))
		}
	}
}

func TestEndOfStream(t *testing.T) {
	var r reorder
	r.grow(10)
	for _, c := range []struct {
		number uint64
		data   string
		err    error
	}{
		{2, "", nil}, {3, "x", errAfterEnd}, {0, "a", nil}, {3, "", errAfterEnd}, {2, "x", errAfterEnd}, {1, "", errAfterEnd}, {1, "b", nil}, {2, "", nil}, {10, "x", errBeyondLimit},
	} {
		if _, err := r.insert(c.number, []byte(c.data)); !errors.Is(err, c.err) {
			t.Errorf("chunk %d %q: %v, want %v", c.number, c.data, err, c.err)
		}
	}
	buf := make([]byte, 10)
	if n, err := r.take(buf); n != 2 || err != nil {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	if n, err := r.take(buf); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %q, %v; want the end", buf[:n], err)
	}
	r = reorder{}
	r.grow(10)
	_, _ = r.insert(5, []byte("x"))
	if _, err := r.insert(4, nil); !errors.Is(err, errAfterEnd) {
		t.Errorf("an end before what has come: %v", err)
	}
}

package link

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestQueueLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit QueueLimit
		want  []bool // outcome of pushing 100, 1400, 100 and 1400 bytes
	}{
		{"none", QueueLimit{}, []bool{true, true, true, true}},
		{"packets", QueueLimit{Packets: 2}, []bool{true, true, false, false}},
		{"bytes, a small one still fits", QueueLimit{Bytes: 1600}, []bool{true, true, true, false}},
		{"bytes, a large one does not", QueueLimit{Bytes: 1499}, []bool{true, false, true, false}},
		{"both", QueueLimit{Packets: 3, Bytes: 1500}, []bool{true, true, false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newQueue(c.limit)
			bytes, dropped := 0, int64(0)
			for i, size := range []int{100, 1400, 100, 1400} {
				if got := q.push(Packet{Bytes: size}); got != c.want[i] {
					t.Fatalf("push %d of %d bytes = %v, want %v", i, size, got, c.want[i])
				}
				if c.want[i] {
					bytes += size
				} else {
					dropped++
				}
			}
			if q.bytes != bytes || q.dropped != dropped {
				t.Errorf("%d bytes, %d dropped, want %d and %d", q.bytes, q.dropped, bytes, dropped)
			}
			if p := q.pop(); p.Bytes != 100 || q.bytes != bytes-100 {
				t.Errorf("pop = %d bytes leaving %d, want 100 leaving %d", p.Bytes, q.bytes, bytes-100)
			}
		})
	}
}

// The ring buffer against a slice, with random operations.
func TestFifoAgainstSlice(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	var f fifo[int]
	var oracle []int
	for i := range 10000 {
		if random.IntN(1000) < 520 || len(oracle) == 0 {
			f.push(i)
			oracle = append(oracle, i)
		} else if got := f.pop(); got != oracle[0] {
			t.Fatalf("operation %d: pop = %d, want %d", i, got, oracle[0])
		} else {
			oracle = slices.Delete(oracle, 0, 1)
		}
		if f.n != len(oracle) || f.n > 0 && (*f.head() != oracle[0] || *f.at(f.n - 1) != oracle[f.n-1]) {
			t.Fatalf("operation %d: ring and slice differ", i)
		}
	}
}

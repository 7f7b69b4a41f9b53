package bgp

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// Random steps, against a map that holds for each route whether it is stale.
func TestTableAgainstMap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	got, want := table{known: map[routeKey]bool{}}, map[routeKey]bool{}
	for range 100000 {
		k := routeKey{pathID: r.Uint32N(50)}
		switch n := r.IntN(100); {
		case n < 50:
			got.put(k)
			want[k] = false
		case n < 95:
			_, had := want[k]
			if got.drop(k) != had {
				t.Fatalf("drop %d: got %v, want %v", k.pathID, !had, had)
			}
			delete(want, k)
		default:
			gone := map[routeKey]bool{}
			got.sweep(func(k routeKey) { gone[k] = true })
			for k, stale := range want {
				if stale != gone[k] {
					t.Fatalf("sweep: %d is stale: %v, swept: %v", k.pathID, stale, gone[k])
				}
			}
			maps.DeleteFunc(want, func(_ routeKey, stale bool) bool { return stale })
			if n > 97 {
				got.age()
				for k := range want {
					want[k] = true
				}
			}
		}
		stale := 0
		for _, is := range want {
			if is {
				stale++
			}
		}
		if got.stale != stale || len(got.known) != len(want) {
			t.Fatalf("got %d routes, %d stale; want %d, %d", len(got.known), got.stale, len(want), stale)
		}
	}
}

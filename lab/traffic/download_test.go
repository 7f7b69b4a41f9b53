package traffic

import (
	"slices"
	"testing"
)

func TestShares(t *testing.T) {
	for _, test := range []struct {
		bytes       int64
		connections int
		want        []int64
	}{
		{10, 1, []int64{10}}, {10, 3, []int64{4, 3, 3}}, {2, 3, []int64{1, 1, 0}}, {0, 2, []int64{endless, endless}},
	} {
		if got := shares(test.bytes, test.connections); !slices.Equal(got, test.want) {
			t.Errorf("%d bytes over %d: %v, want %v", test.bytes, test.connections, got, test.want)
		}
	}
}

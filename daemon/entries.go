package daemon

import (
	"errors"

	"github.com/cilium/ebpf"
)

// entries reads a hash map that others change meanwhile, in pieces of most entries. Key by key the reading would begin anew, and at last fail, whenever the kernel forgets the
// key it is at (BPF_MAP_GET_NEXT_KEY in bpf(2)). What comes or goes meanwhile is there or not.
func entries[K, V any](m *ebpf.Map, most int, each func(*K, *V)) error {
	keys, values := make([]K, most), make([]V, most)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := range n {
			each(&keys[i], &values[i])
		}
		if err != nil {
			return nil
		}
	}
}

package daemon

import (
	"encoding/binary"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"plait.dev/plait/bpf"
)

// state is what plait keeps of the server's socket, of which tests look at single numbers, or change them while nothing is on the way.
type state struct {
	*switching
	spec *ebpf.CollectionSpec
	all  []byte // struct plait_sock
}

func (s *switching) state() *state {
	s.Helper()
	spec, _, err := bpf.Load()
	s.must(err)
	st := &state{switching: s, spec: spec, all: make([]byte, spec.Maps["plait_socks"].ValueSize)}
	st.fd(func(key uint32) error { return s.kernel.Maps["plait_socks"].Lookup(key, st.all) })
	return st
}

// fd calls f with the key of the server's socket.
func (st *state) fd(f func(key uint32) error) {
	st.Helper()
	raw, err := st.server.SyscallConn()
	st.must(err)
	st.must(raw.Control(func(fd uintptr) { err = f(uint32(fd)) }))
	st.must(err)
}

// field is where a number is, of struct plait_sock or of an algorithm's own.
func (st *state) field(in, name string) []byte {
	st.Helper()
	socket := st.spec.Maps["plait_socks"].Value.(*btf.Struct)
	of, base := socket, uint32(0)
	if in != socket.Name {
		st.must(st.spec.Types.TypeByName(in, &of))
		private, _ := fieldOffset(socket.Members, "private")
		base = private.Bytes()
	}
	for _, m := range of.Members {
		if m.Name == name {
			n, err := btf.Sizeof(m.Type)
			st.must(err)
			return st.all[base+m.Offset.Bytes():][:n]
		}
	}
	st.Fatalf("struct %s has no %s", in, name)
	return nil
}

func (st *state) get(in, name string) uint64 {
	st.Helper()
	b := make([]byte, 8)
	copy(b, st.field(in, name))
	return binary.LittleEndian.Uint64(b)
}

// set puts a number in place of one.
func (st *state) set(in, name string, value uint64) {
	st.Helper()
	copy(st.field(in, name), binary.LittleEndian.AppendUint64(nil, value))
	st.put()
}

func (st *state) put() {
	st.Helper()
	st.fd(func(key uint32) error { return st.kernel.Maps["plait_socks"].Put(key, st.all) })
}

package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
)

// maxSocketBytes is what the state of a connection may have, so that it fits in 512 bytes of the kernel (bpf/sock.h).
const maxSocketBytes = 432

// The object that is built in is whole, and its state per socket stays small.
func TestSocketMemory(t *testing.T) {
	spec, err := LoadPlait()
	if err != nil {
		t.Fatal(err)
	}
	socks := spec.Maps["plait_socks"]
	if socks == nil || socks.Type != ebpf.SkStorage {
		t.Fatalf("plait_socks is %+v, want a map of the state per socket", socks)
	}
	t.Logf("struct plait_sock has %d bytes", socks.ValueSize)
	if socks.ValueSize > maxSocketBytes {
		t.Errorf("struct plait_sock has %d bytes, want at most %d", socks.ValueSize, maxSocketBytes)
	}
	for _, name := range []string{Name, "plait_policies", "plait_choices", "plait_samples", "plait_latencies", "plait_prefixes", "plait_ports", "plait_cgroups", "plait_reverted"} {
		if spec.Maps[name] == nil {
			t.Errorf("the object has no map %s", name)
		}
	}
	for _, name := range []string{"plait_cong_control", "plait_cong_control_flag", "plait_release", "plait_sockops", "plait_sockets", "plait_sendmsg", "plait_acked"} {
		if spec.Programs[name] == nil {
			t.Errorf("the object has no program %s", name)
		}
	}
}

package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
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
	for _, name := range []string{"plait_cong_control", "plait_cong_control_flag", "plait_cwnd_event_tx_start", "plait_release", "plait_sockops", "plait_sockets", "plait_sendmsg", "plait_sendpages", "plait_acked"} {
		if spec.Programs[name] == nil {
			t.Errorf("the object has no program %s", name)
		}
	}
}

// Each kernel gets the programs it has a place for: what it lacks would keep all from being loaded, what it has and does not get would never be called.
func TestFitting(t *testing.T) {
	operation := func(name string, parameters int) btf.Member {
		return btf.Member{Name: name, Type: &btf.Pointer{Target: &btf.FuncProto{Params: make([]btf.FuncParam, parameters)}}}
	}
	for release, c := range map[string]struct {
		ops           []btf.Member
		flag, txStart bool
	}{
		"6.1":  {[]btf.Member{operation("cong_control", 2), operation("cwnd_event", 2)}, false, false},
		"6.12": {[]btf.Member{operation("cong_control", 4), operation("cwnd_event", 2)}, true, false},
		"7.1":  {[]btf.Member{operation("cong_control", 4), operation("cwnd_event", 2), operation("cwnd_event_tx_start", 1)}, true, true},
	} {
		spec, err := fitting(&btf.Struct{Name: "tcp_congestion_ops", Members: c.ops})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{
			"plait_cong_control": !c.flag, "plait_cong_control_flag": c.flag, "plait_cwnd_event": true, "plait_cwnd_event_tx_start": c.txStart,
		} {
			if got := spec.Programs[name] != nil; got != want {
				t.Errorf("Linux %s: %s is there: %v, want %v", release, name, got, want)
			}
		}
	}
	if _, err := fitting(&btf.Struct{Name: "tcp_congestion_ops"}); err == nil {
		t.Error("a kernel without cong_control has no error")
	}
}

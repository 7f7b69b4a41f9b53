package daemon

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// prefixKey is the key of the kernel half's longest-prefix match: IPv4 as mapped addresses.
type prefixKey struct {
	Bits    uint32
	Address [16]byte
}

// allIPv4 is where the kernel half has all of IPv4.
var allIPv4 = keyOf(netip.PrefixFrom(netip.IPv4Unspecified(), 0))

func keyOf(p netip.Prefix) prefixKey {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return prefixKey{uint32(bits), p.Addr().As16()}
}

func (k *kernel) setPolicy(index uint32, p bpf.Policy) error {
	if err := k.Maps["plait_policies"].Put(index, p); err != nil {
		return fmt.Errorf("write policy %d: %w", index, err)
	}
	return nil
}

// setRules replaces what has a policy of its own; rule i has policy i+1.
func (k *kernel) setRules(rules []Rule) error {
	ports, prefixes, cgroups := map[uint32]uint32{}, map[prefixKey]uint32{}, map[uint64]uint32{}
	for i, r := range rules {
		for _, p := range r.Ports {
			ports[uint32(p)] = uint32(i + 1)
		}
		for _, p := range r.Prefixes {
			prefixes[keyOf(p)] = uint32(i + 1)
			if _, ruled := prefixes[allIPv4]; !ruled && p.Contains(netip.AddrFrom16(allIPv4.Address)) {
				prefixes[allIPv4] = 0 // ::/0 is a rule for IPv6: IPv4 has none by it
			}
		}
		for _, id := range r.Cgroups {
			cgroups[id] = uint32(i + 1)
		}
	}
	if err := replace(k.Maps["plait_ports"], ports); err != nil {
		return fmt.Errorf("write rules by port: %w", err)
	}
	if err := replace(k.Maps["plait_prefixes"], prefixes); err != nil {
		return fmt.Errorf("write rules by prefix: %w", err)
	}
	if err := replace(k.Maps["plait_cgroups"], cgroups); err != nil {
		return fmt.Errorf("write rules by cgroup: %w", err)
	}
	k.control.CgroupRules = uint32(len(cgroups))
	return nil
}

// destination is a prefix under a policy, by the name in the kernel half's table: what is given back to the system's default.
type destination struct {
	prefix netip.Prefix
	policy string
}

// setReverted replaces what was given back.
func (k *kernel) setReverted(all map[destination]PrefixStatus, table []policy) error {
	keys := map[bpf.Prefix]uint32{}
	for d := range all {
		for i, p := range table {
			if p.name == d.policy {
				keys[bpf.Prefix{Address: d.prefix.Addr().As16(), Policy: uint8(i)}] = 1
			}
		}
	}
	if err := replace(k.Maps["plait_reverted"], keys); err != nil {
		return fmt.Errorf("write what is given back to the system's default: %w", err)
	}
	return nil
}

// full says whether a map had no room, or the kernel no memory for an entry at this moment, which it does not wait for (bpf_mem_cache_alloc).
func full(err error) bool {
	return errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM)
}

// replace makes a map hold exactly what is wanted. New entries come before old ones go, so that none is missing meanwhile, unless
// there is no room for both.
func replace[K comparable](m *ebpf.Map, want map[K]uint32) error {
	have := map[K]uint32{}
	var key K
	var value uint32
	it := m.Iterate()
	for it.Next(&key, &value) {
		have[key] = value
	}
	if err := it.Err(); err != nil {
		return err
	}
	err := put(m, have, want)
	if err != nil && !full(err) {
		return err
	}
	for key := range have {
		if _, ok := want[key]; ok {
			continue
		}
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	if err != nil {
		err = put(m, have, want)
	}
	return err
}

// put writes what is not there yet: a full map may refuse even what it has.
func put[K comparable](m *ebpf.Map, have, want map[K]uint32) error {
	for key, value := range want {
		if old, ok := have[key]; ok && old == value {
			continue
		}
		if err := m.Put(key, value); err != nil {
			return err
		}
	}
	return nil
}

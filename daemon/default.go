package daemon

import (
	"fmt"
	"os"
	"strings"

	"plait.dev/plait/bpf"
)

// fallback is the system's default congestion control, to which sockets return.
func fallback() (out [16]uint8, err error) {
	name, err := os.ReadFile(current)
	if err != nil {
		return out, fmt.Errorf("read the system's default congestion control: %w", err)
	}
	text := strings.TrimSpace(string(name))
	if text == bpf.Name {
		return out, fmt.Errorf("the system's default congestion control (%s) is plait itself: set another, to which connections can return", current)
	}
	copy(out[:15], text)
	return out, nil
}

// follow makes the system's present default the one connections return to, and says whether it is another than before: it may be changed while plait is up. One to which none can return
// changes nothing; Status warns. Held-out connections were on another until now, so the comparison begins anew, and what was slower than that gets another chance. The caller has d.mu.
func (d *Daemon) follow() (changed bool, err error) {
	k := d.kernel
	name, err := fallback()
	if err != nil || name == k.control.Fallback {
		return false, nil
	}
	fmt.Fprintf(d.options.Log, "the system's default congestion control was %s and is %s: connections return to that from now on, and the comparison begins anew\n",
		name16(k.control.Fallback), name16(name))
	clear(d.reverted)
	if err := k.setReverted(d.reverted, d.policies); err != nil {
		return true, err
	}
	k.control.Fallback = name
	k.control.Generation++ // for what is no longer given back
	if err := k.beat(d.every); err != nil {
		return true, err
	}
	return true, k.clearLatencies()
}

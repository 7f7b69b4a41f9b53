package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/egress/route"
)

// What openExits remembers beside the control socket, under its name: another plait, of another network namespace, may have its own in the same directory.
const (
	tunnelSourceSuffix = ".tunnel-source"
	pathManagerSuffix  = ".path-manager"
)

// unregister removes the congestion control a plait that was killed left on a kernel before 6.4, where registration does not end with the process.
func unregister() error {
	if !registered() {
		return nil
	}
	for id := ebpf.MapID(0); ; {
		next, err := ebpf.MapGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove congestion control %s: the kernel knows it, but no map of that name is there; is it a module?", bpf.Name)
		}
		if errors.Is(err, unix.EPERM) { // a container may lack this right
			if _, linked, _ := bpf.Load(); linked { // and there is nothing to remove
				return Others{errTaken(linked)}
			}
		}
		if err != nil {
			return fmt.Errorf("list BPF maps: %w", err)
		}
		id = next
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue // gone meanwhile
		}
		info, err := m.Info()
		if err != nil || info.Type != ebpf.StructOpsMap || info.Name != bpf.Name {
			m.Close()
			continue
		}
		err = m.Delete(uint32(0))
		m.Close()
		if errors.Is(err, unix.EOPNOTSUPP) { // it hangs on a link, and with that on a process
			return Others{errTaken(true)}
		}
		if err != nil {
			return fmt.Errorf("unregister congestion control %s: %w", bpf.Name, err)
		}
		return nil
	}
}

// noExits says that no plait can have had exits here: without IPv6 there is no SRv6.
func noExits() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return errors.Is(err, fs.ErrNotExist)
}

// removeExits takes back what the lever egress has left in this network namespace, and says how many changes that took.
func removeExits(control string) (changes int, err error) {
	k, err := route.Open(route.Config{Memory: control + tunnelSourceSuffix, Journal: func(s route.Step) {
		if s.Err == nil {
			changes++
		}
	}})
	if err != nil {
		return 0, err
	}
	defer k.Close()
	return changes, takeBack(k, control+pathManagerSuffix)
}

// removeKilled removes the exits of a plait with this control socket that was killed, where the next one is to have none in the kernel: nobody would follow BGP with
// them. That something is remembered says that there are any.
func removeKilled(c Config, log io.Writer) {
	if !slices.ContainsFunc([]string{tunnelSourceSuffix, pathManagerSuffix}, func(s string) bool { _, err := os.Stat(c.Control + s); return err == nil }) {
		return
	}
	if !c.Egress.there() { // else this plait has the lock
		held, err := lockExits(0)
		if err != nil { // they are in use
			return
		}
		defer held.Close()
	}
	n, err := removeExits(c.Control)
	if n > 0 {
		fmt.Fprintf(log, "a plait that was killed had left its BGP exits in the kernel, and nobody would follow BGP with them: %d changes to remove them\n", n)
	}
	if err != nil {
		fmt.Fprintf(log, "remove the BGP exits that a plait that was killed had left: %v; plait down tries again\n", err)
	}
}

// takeBack makes the kernel's state what it was without exits. saved is where the path manager there was is kept.
func takeBack(k *route.Kernel, saved string) error {
	err := mptcp.TurnOff(saved)
	addresses, failed := k.Addresses()
	if len(addresses) > 0 {
		failed = errors.Join(failed, mptcp.Release(addresses))
	}
	return errors.Join(err, failed, k.Remove())
}

// Left is what a plait that was killed had left.
type Left struct {
	Connections uint64 // that still had its congestion control, and return
	Kept        uint64 // that the kernel does not let go, as where a route locks the congestion control
	Exits       int    // changes of routes, rules and addresses it took to remove its exits
}

// release returns the connections that still have the congestion control of a plait that was killed. The kernel keeps that working for them without a name or a
// daemon, and those that send nothing do not notice. The caller has asked for the name: nobody has it.
func (l *Left) release() error {
	spec, _, err := bpf.Load()
	if err != nil {
		return nil // a host without what plait needs has had none
	}
	delete(spec.Maps, bpf.Name) // before Linux 6.4 to load it is to register it
	spec.Programs = map[string]*ebpf.ProgramSpec{passProgram: spec.Programs[passProgram]}
	name, err := fallback()
	if err != nil {
		return fmt.Errorf("return the connections of a plait that was killed: %w", err)
	}
	k := &kernel{takes: true, linked: true, control: bpf.Control{Fallback: name}}
	if k.Collection, err = ebpf.NewCollection(spec); err != nil {
		return fmt.Errorf("load the program that returns the connections of a plait that was killed: %w", refused(err))
	}
	defer k.Close()
	if err := k.beat(0); err != nil {
		return err
	}
	if err := k.pass(passRelease); err != nil {
		return fmt.Errorf("return the connections of a plait that was killed: %w", err)
	}
	c, err := k.counters()
	l.Connections, l.Kept = c.FellBack, c.Refused
	return err
}

// Cleanup removes what a plait with this control socket has left that was killed, and says what that was. What the lever egress left stays if exits is false,
// for the next plait to go on with, but packets of the exits' addresses take the best path until then.
func Cleanup(control string, exits bool) (left Left, err error) {
	held, err := lock(control, orphanPatience)
	if err != nil {
		return left, err
	}
	defer held.Close()
	heldCongestion, err := lockCongestion(orphanPatience)
	if err != nil {
		return left, err
	}
	defer func() { err = errors.Join(err, closeAll(heldCongestion)) }()
	if err := unregister(); err != nil { // says so if another plait is up, whose exits these may be
		return left, err
	}
	err = left.release()
	if noExits() {
		return left, err
	}
	heldExits, failed := lockExits(orphanPatience)
	if failed != nil {
		return left, cmp.Or(err, failed) // one may be left out by who ended a plait: Others
	}
	defer heldExits.Close()
	if !exits {
		return left, errors.Join(err, release(os.Stderr))
	}
	if left.Exits, failed = removeExits(control); failed != nil {
		err = errors.Join(err, fmt.Errorf("remove what a killed plait has left: %w", failed))
	}
	return left, err
}

package mptcp

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// Lack is something this kernel does not let the package do.
type Lack struct {
	What string // is missing
	Do   string // what helps
	// Fatal: without it no connection gets a second subflow.
	Fatal bool
}

// Probe finds out what lacks in the calling thread's network namespace. It tries and changes nothing; without lacks it returns nil.
func Probe() []Lack {
	if lacks := probeSysctls(sysctls); len(lacks) > 0 {
		return lacks
	}
	kernel, err := openCommands()
	if err != nil {
		return []Lack{{err.Error(), "use Linux 5.19 or newer with CONFIG_MPTCP", true}}
	}
	defer kernel.conn.Close()
	var lacks []Lack
	// There is no token 0. A kernel that knows the command says so; others say that they do not, or that it is not allowed.
	nobody := netip.AddrPortFrom(netip.IPv6Loopback(), 1)
	for _, try := range []struct {
		what string
		err  error
	}{
		{"announce addresses (ADD_ADDR)", kernel.Announce(0, nobody.Addr(), idBase)},
		{"withdraw addresses (RM_ADDR)", kernel.Remove(0, idBase)},
		{"close subflows", kernel.Destroy(0, Subflow{Local: nobody, Remote: nobody})},
	} {
		if !errors.Is(try.err, ErrGone) {
			lacks = append(lacks, Lack{"user space cannot " + try.what + ": " + errorText(try.err),
				"run as root, on Linux 5.19 or newer", true})
		}
	}
	if events, err := openEvents(kernel.group); err != nil {
		lacks = append(lacks, Lack{err.Error(), "run as root", true})
	} else {
		events.Close()
	}
	if _, err := takeInventory(); err != nil {
		lacks = append(lacks, Lack{"existing connections cannot be found: " + err.Error(),
			"load the modules tcp_diag and mptcp_diag, or use a kernel with CONFIG_INET_MPTCP_DIAG", true})
	}
	return lacks
}

// SwitchedOff is what lacks in the switches of the calling thread's network namespace: somebody can turn them at any time.
func SwitchedOff() []Lack { return probeSysctls(sysctls) }

func errorText(err error) string {
	if err == nil {
		return "the kernel accepted it for a connection that does not exist"
	}
	return err.Error()
}

func probeSysctls(dir string) []Lack {
	enabled, err := os.ReadFile(filepath.Join(dir, "enabled"))
	if err != nil {
		return []Lack{{"the kernel has no MPTCP: " + err.Error(), "use a kernel with CONFIG_MPTCP, as Debian's are", true}}
	}
	if strings.TrimSpace(string(enabled)) != "1" {
		return []Lack{{"MPTCP is switched off (net.mptcp.enabled)", "sysctl -w net.mptcp.enabled=1", true}}
	}
	if _, _, _, err := userSpaceSwitch(dir); err != nil {
		return []Lack{{err.Error(), "use Linux 5.19 or newer", true}}
	}
	return nil
}

package mptcp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sysctls is where the kernel keeps MPTCP's switches of the reading thread's network namespace.
const sysctls = "/proc/sys/net/mptcp"

// switches are the sysctls that give new connections to user space, newest first: path_manager came with Linux 6.15, pm_type with 5.19.
// Each follows the other where both exist.
var switches = []struct{ file, userSpace string }{
	{"path_manager", "userspace"},
	{"pm_type", "1"},
}

// TurnOn gives the connections that come from now on, in the calling thread's network namespace, to user space; those that exist stay with the
// path manager they have. What was set before is written to the file saved, unless that is there already, from a process that died.
// With nobody listening for events, new connections work with one subflow: the kernel refuses to join more (Service).
func TurnOn(saved string) error { return turnOn(sysctls, saved) }

// TurnOff sets again what the file says, and removes it. If somebody else has changed the setting meanwhile, it stays. Without the
// file there is nothing to do.
func TurnOff(saved string) error { return turnOff(sysctls, saved) }

// userSpaceSwitch finds the sysctl of this kernel.
func userSpaceSwitch(dir string) (path, userSpace, now string, err error) {
	for _, s := range switches {
		path := filepath.Join(dir, s.file)
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", "", fmt.Errorf("read path manager of MPTCP: %w", err)
		}
		return path, s.userSpace, strings.TrimSpace(string(b)), nil
	}
	return "", "", "", fmt.Errorf("find path manager of MPTCP: %s has neither path_manager nor pm_type: use Linux 5.19 or newer with CONFIG_MPTCP", dir)
}

func turnOn(dir, saved string) error {
	path, userSpace, now, err := userSpaceSwitch(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(saved); errors.Is(err, fs.ErrNotExist) {
		// A new file and a rename: half a file would restore nonsense.
		err := os.WriteFile(saved+".new", []byte(now+"\n"), 0o600)
		if err == nil {
			err = os.Rename(saved+".new", saved)
		}
		if err != nil {
			return fmt.Errorf("save path manager of MPTCP before changing it: %w", err)
		}
	} else if err != nil {
		return fmt.Errorf("look for saved path manager of MPTCP: %w", err)
	}
	if now == userSpace {
		return nil
	}
	if err := os.WriteFile(path, []byte(userSpace), 0); err != nil {
		return fmt.Errorf("set path manager of MPTCP to user space: %w: this needs root", err)
	}
	return nil
}

func turnOff(dir, saved string) error {
	before, err := os.ReadFile(saved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read saved path manager of MPTCP: %w", err)
	}
	path, userSpace, now, err := userSpaceSwitch(dir)
	if err != nil {
		return err
	}
	if value := strings.TrimSpace(string(before)); now == userSpace && value != now {
		if err := os.WriteFile(path, []byte(value), 0); err != nil {
			return fmt.Errorf("set path manager of MPTCP back to %s: %w: sysctl -w net.mptcp.%s=%s does it", value, err, filepath.Base(path), value)
		}
	}
	return os.Remove(saved)
}

package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// unescape undoes what /proc/mounts does to blanks in paths.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// hierarchy gives the fields of the first cgroup v2 hierarchy in the text of /proc/PID/mounts; on hosts that have both versions it is mounted on
// /sys/fs/cgroup/unified.
func hierarchy(mounts string) (fields []string) {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) >= 4 && f[2] == "cgroup2" {
			return f
		}
	}
	return nil
}

// cgroupMount is where it is mounted. The advice is not /sys/fs/cgroup, where a host with version 1 has the controllers that would be hidden.
func cgroupMount(mounts string) (string, error) {
	if f := hierarchy(mounts); f != nil {
		return unescape.Replace(f[1]), nil
	}
	return "", errors.New("find cgroup v2: /proc/mounts has none; mount it (mkdir -p /run/cgroup2 && mount -t cgroup2 none /run/cgroup2) or name a directory as cgroup in the configuration")
}

// descriptors is where a file that has no path has a name.
const descriptors = "/proc/self/fd/"

// mountCgroup opens the hierarchy where it is not mounted, as in ip-netns(8) exec, and says as what. Nobody else sees the mount, and it goes with this
// process. A mount without the options the hierarchy has (nsdelegate and others) would take them away on the whole host: cgroup_get_tree() in
// kernel/cgroup/cgroup.c. So they are those of the host's first process, and if it has none there is no mount either.
var mountCgroup = sync.OnceValues(func() (string, error) {
	mounts, err := os.ReadFile("/proc/1/mounts")
	if err != nil {
		return "", err
	}
	host := hierarchy(string(mounts))
	if host == nil {
		return "", errors.New("the host has none")
	}
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", err
	}
	defer unix.Close(fs)
	for _, option := range strings.Split(host[3], ",") {
		if err := unix.FsconfigSetFlag(fs, option); err != nil && !errors.Is(err, unix.EINVAL) { // which are the mount's, not the hierarchy's
			return "", err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return "", err
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(descriptors, mount), nil
})

// shownCgroup is what a user is told of a path of findCgroup's.
func shownCgroup(path string) string {
	if strings.HasPrefix(path, descriptors) {
		return "the whole host"
	}
	return path
}

// findCgroup returns the directory whose processes are all of the host's.
func findCgroup() (string, error) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return "", fmt.Errorf("find cgroup v2: %w", err)
	}
	mount, err := cgroupMount(string(mounts))
	if err == nil {
		return mount, nil
	}
	if mount, hidden := mountCgroup(); hidden == nil {
		return mount, nil
	}
	return "", err
}

// cgroupID is the number of a cgroup (v2) in the kernel, which for a directory of kernfs is the inode's.
func cgroupID(path string) (uint64, error) {
	var fs unix.Statfs_t
	var file unix.Stat_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, err
	}
	if err := unix.Stat(path, &file); err != nil {
		return 0, err
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC || file.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, errors.New("not a directory of cgroup v2")
	}
	return file.Ino, nil
}

// whose finds the cgroup whose connections are taken, and its number in the kernel.
func (c Config) whose() (path string, id uint64, err error) {
	path = c.Cgroup
	if path == "" { // there was no mount when the configuration was read
		if path, err = findCgroup(); err != nil {
			return "", 0, err
		}
	}
	if id, err = cgroupID(path); err != nil {
		return "", 0, fmt.Errorf("find cgroup %s: %w; name another as cgroup in the configuration", path, err)
	}
	return path, id, nil
}

// occupant is the program that sees the connections of a cgroup, the nearest from there up to the mount, and which cgroup it is attached to; "": there is none.
func occupant(cgroup string) (id ebpf.ProgramID, where string) {
	for path := cgroup; ; path = filepath.Dir(path) {
		if _, err := cgroupID(path); err != nil {
			return 0, "" // above the mount
		}
		d, err := os.Open(path)
		if err != nil {
			return 0, ""
		}
		found, err := link.QueryPrograms(link.QueryOptions{Target: int(d.Fd()), Attach: ebpf.AttachCGroupSockOps})
		d.Close()
		if err != nil {
			return 0, ""
		}
		if len(found.Programs) > 0 {
			return found.Programs[0].ID, path
		}
	}
}

// replaced says that new connections are not taken because the cgroup is gone that there was when plait came up, or there is another one by its name, as of a
// service that was started anew: the kernel's hook is with the one that was.
func (k *kernel) replaced(cgroup string) string {
	id, err := cgroupID(cgroup)
	switch {
	case !k.takes || err == nil && id == k.control.Cgroup:
		return ""
	case err != nil:
		return fmt.Sprintf("new connections are not taken: cgroup %s: %v; make it, or name another, and run plait down and plait up", shownCgroup(cgroup), err)
	}
	return fmt.Sprintf("new connections are not taken: cgroup %s was removed and made again, and is another one to the kernel: run plait down and plait up, "+
		"or name one above it, which stays", shownCgroup(cgroup))
}

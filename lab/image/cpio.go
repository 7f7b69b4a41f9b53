package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// cpioWriter writes the "newc" format the kernel unpacks (Documentation/driver-api/early-userspace/buffer-format.rst).
// Owners, modes and names are kept; times and inode numbers are not, so that the same tree gives the same bytes.
type cpioWriter struct {
	w     *bufio.Writer
	inode int
	err   error
}

func (c *cpioWriter) add(name string, mode int64, uid, gid int, major, minor int64, size int64, body io.Reader) {
	if c.err != nil {
		return
	}
	c.inode++
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.inode, mode, uid, gid, 1, 0, size, 0, 0, major, minor, len(name)+1, 0, name)
	_, c.err = c.w.WriteString(header + padding(len(header)))
	if c.err == nil && size > 0 {
		_, c.err = io.CopyN(c.w, body, size)
	}
	if c.err == nil {
		_, c.err = c.w.WriteString(padding(int(size)))
	}
}

func padding(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }

// close ends the archive.
func (c *cpioWriter) close() error {
	c.add("TRAILER!!!", 0, 0, 0, 0, 0, 0, nil)
	return errors.Join(c.err, c.w.Flush())
}

// file types of the mode field, from stat(2)
const (
	modeFile    = 0o100000
	modeDir     = 0o040000
	modeSymlink = 0o120000
	modeChar    = 0o020000
	modeBlock   = 0o060000
)

// convert writes the tree of a tar archive as a cpio archive, without what no guest needs, and gives the kernel to
// kernel. A hard link becomes a symbolic link.
func convert(from io.Reader, to io.Writer, kernel io.Writer) error {
	archive := tar.NewReader(from)
	out := cpioWriter{w: bufio.NewWriterSize(to, 1<<20)}
	found := false
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read root file system: %w", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		switch {
		case strings.HasPrefix(name, "boot/vmlinuz-"):
			found = true
			if _, err := io.Copy(kernel, archive); err != nil {
				return fmt.Errorf("read kernel: %w", err)
			}
			continue
		case name == "" || unwanted(name):
			continue
		}
		text := func(kind int64, target string) {
			out.add(name, kind|h.Mode, h.Uid, h.Gid, 0, 0, int64(len(target)), strings.NewReader(target))
		}
		switch h.Typeflag {
		case tar.TypeReg:
			out.add(name, modeFile|h.Mode, h.Uid, h.Gid, 0, 0, h.Size, archive)
		case tar.TypeDir:
			text(modeDir, "")
		case tar.TypeSymlink:
			text(modeSymlink, h.Linkname)
		case tar.TypeLink:
			text(modeSymlink, path.Clean("/"+h.Linkname))
		case tar.TypeChar:
			out.add(name, modeChar|h.Mode, h.Uid, h.Gid, h.Devmajor, h.Devminor, 0, nil)
		case tar.TypeBlock:
			out.add(name, modeBlock|h.Mode, h.Uid, h.Gid, h.Devmajor, h.Devminor, 0, nil)
		}
		if out.err != nil {
			return fmt.Errorf("write %s: %w", name, out.err)
		}
	}
	if !found {
		return errors.New("read root file system: no kernel in /boot")
	}
	return out.close()
}

// unwanted says whether no guest needs the file: it would only take memory and time at boot.
func unwanted(name string) bool {
	for _, prefix := range []string{
		"boot/", "usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/info/", "usr/share/zoneinfo/",
		"usr/lib/x86_64-linux-gnu/gconv/", "usr/share/i18n/", "usr/lib/apt/", "var/lib/apt/", "var/cache/", "var/log/", "var/lib/dpkg/info/",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	if rest, ok := strings.CutPrefix(name, "usr/lib/modules/"); ok {
		_, sub, _ := strings.Cut(rest, "/")
		for _, prefix := range []string{"kernel/fs/", "kernel/sound/", "kernel/drivers/gpu/", "kernel/drivers/scsi/", "kernel/drivers/nvme/", "kernel/drivers/md/"} {
			if strings.HasPrefix(sub, prefix) {
				return true
			}
		}
	}
	return false
}

// writeAgent writes an archive that holds only the init program, which is also the command plait of the guest.
func writeAgent(to io.Writer, agent []byte) error {
	out := cpioWriter{w: bufio.NewWriter(to)}
	out.add("init", modeFile|0o755, 0, 0, 0, 0, int64(len(agent)), bytes.NewReader(agent))
	out.add("usr/bin/plait", modeSymlink|0o777, 0, 0, 0, 0, int64(len("/init")), strings.NewReader("/init"))
	return out.close()
}

// Package image makes the root file system and the kernel the lab's guests run: an unmodified Debian 13 with the
// programs experiments use, and the kernel of Debian 13, of its backports, or kernel and FRR of Debian 12.
package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// DefaultKernel is the generation experiments run on unless they say otherwise.
const DefaultKernel = "6.12"

// suites a kernel generation comes from: Debian's release, and what of it is installed instead of Debian 13's.
var suites = map[string]struct{ release, packages, pins string }{
	"6.1":  {"bookworm", kernelPackage + " --allow-downgrades frr", "linux-* frr libyang2"}, // the kernel and the routers of Debian 12
	"6.12": {"trixie", kernelPackage, ""},
	"7.2":  {"trixie-backports", kernelPackage, "linux-*"},
}

const kernelPackage = "linux-image-cloud-amd64"

// Kernels lists the generations an image can be made with.
func Kernels() []string { return []string{"6.1", "6.12", "7.2"} }

// packages of the guest, beside Debian's minimal set.
var packages = []string{
	"iproute2", "ethtool", "iputils-ping", "procps", "kmod", "less", "nftables", // the host's own tools
	"frr", "lksctp-tools", "mptcpize", // routing and transports
	"nginx-light", "curl", "iperf3", "tcpdump", "bpftool", // traffic and a look at it
	"bpftune", "mptcpd", "mptcpd-plugins", "rsync", "aria2", "openssh-client", "openssh-server", // what to compare with
}

const (
	rootFile    = "root.cpio"
	kernelFile  = "vmlinuz"
	digestFile  = "sha256"
	recipeFile  = "recipe"
	freeDiskMin = 2 << 30 // bytes: the archive, the tree made of it, and one saved state
)

// Image is a kernel and a root file system without the agent.
type Image struct {
	// Kernel and Root are the paths of both.
	Kernel, Root string
	// Digest is the SHA-256 of both, in hexadecimal.
	Digest string
}

// Find returns the image of a kernel generation if it is in the cache directory, made as this version makes it.
func Find(cache, kernel string) (Image, bool) {
	dir := filepath.Join(cache, "image", kernel)
	digest, err := os.ReadFile(filepath.Join(dir, digestFile))
	made, recipeErr := os.ReadFile(filepath.Join(dir, recipeFile))
	return Image{filepath.Join(dir, kernelFile), filepath.Join(dir, rootFile), strings.TrimSpace(string(digest))},
		err == nil && recipeErr == nil && string(made) == recipe(kernel)
}

// recipe is what an image is made by. One made by another lacks what newer experiments need.
func recipe(kernel string) string {
	return strings.Join(mmdebstrapArguments(kernel, "root.tar"), "\n") + "\n"
}

// mmdebstrapArguments for a kernel generation. Debian 13 is the source of everything but the kernel, and of FRR unless that is 6.1.
func mmdebstrapArguments(kernel, archive string) []string {
	args := []string{"--quiet", "--variant=apt", "--architectures=amd64", `--aptopt=Acquire::Languages "none"`, "--aptopt=APT::Install-Recommends false"}
	suite := suites[kernel]
	hook := "apt-get install -y -qq " + suite.packages
	if suite.pins != "" {
		// The other suites have packages of the same names: these, and nothing else, are taken from there.
		hook = "sed -n 's/ trixie / " + suite.release + " /p' /etc/apt/sources.list > /etc/apt/sources.list.d/kernel.list && " +
			"printf 'Package: *\nPin: release n=" + suite.release + "\nPin-Priority: -1\n\nPackage: " + suite.pins + "\nPin: release n=" + suite.release + "\nPin-Priority: 1001\n' > /etc/apt/preferences.d/kernel && " +
			"apt-get update -qq && " + hook
	}
	return append(args, `--customize-hook=rm -f "$1"/etc/ssh/ssh_host_*`, // made at random; two images are to be the same
		"--customize-hook=chroot \"$1\" sh -ec '"+strings.ReplaceAll(hook, "'", `'\''`)+"'",
		"--include="+strings.Join(packages, ","), "trixie", archive)
}

// remedy says what a user's mmdebstrap that failed may lack. Without newuidmap it names nothing that is missing: it is "unable to pick chroot mode".
func remedy(uid int) string {
	needs := "It must reach Debian's package archive, and be root or able to make user namespaces, which `unshare --user true` tries"
	if _, err := exec.LookPath("newuidmap"); err != nil && uid != 0 {
		needs += "; for those newuidmap is not installed: install it with `apt-get install uidmap`"
	}
	return needs
}

// Build makes the image of a kernel generation in the cache directory, replacing what is there. It needs mmdebstrap and
// Debian's package archive, and root or user namespaces. Each step is told to doing, in words.
func Build(ctx context.Context, cache, kernel string, doing func(string)) (Image, error) {
	if _, known := suites[kernel]; !known {
		return Image{}, fmt.Errorf("make image: kernel %q is not one of %s", kernel, strings.Join(Kernels(), ", "))
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return Image{}, &HostError{errors.New("make image: mmdebstrap is not installed; install it with `apt-get install mmdebstrap uidmap`")}
	}
	final := filepath.Join(cache, "image", kernel)
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return Image{}, err
	}
	if err := NeedDisk("make image", cache, freeDiskMin); err != nil {
		return Image{}, err
	}
	temp, err := newDir(filepath.Dir(final))
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(temp)
	archive := filepath.Join(temp, "root.tar")
	doing(fmt.Sprintf("making the guest image (Debian 13, Linux %s): once, about a minute", kernel))
	steps := steps{doing: doing}
	loud := slices.DeleteFunc(mmdebstrapArguments(kernel, archive), func(a string) bool { return a == "--quiet" }) // it is in the recipe of every image there is, and changes none
	cmd := exec.CommandContext(ctx, "mmdebstrap", loud...)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1767225600", "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt must not end its helpers while it needs them to unmount
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Stdout, cmd.Stderr = &steps, &steps
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return Image{}, context.Cause(ctx)
		}
		return Image{}, fmt.Errorf("make image: mmdebstrap: %w\n%s\n%s", err, tail(steps.said.String(), 15), remedy(os.Geteuid()))
	}
	steps.tell(packing)
	if err := pack(ctx, archive, temp); err != nil {
		if ctx.Err() != nil {
			return Image{}, context.Cause(ctx)
		}
		return Image{}, fmt.Errorf("make image: %w", err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(temp, recipeFile), []byte(recipe(kernel)), 0o644), os.Remove(archive)); err != nil {
		return Image{}, fmt.Errorf("make image: %w", err)
	}
	if err := put(temp, final); err != nil {
		return Image{}, fmt.Errorf("make image: %w", err)
	}
	image, _ := Find(cache, kernel)
	return image, nil
}

// newDir makes a directory for an image in the making, and removes those that a plait which was killed has left. None takes an hour.
func newDir(images string) (string, error) {
	entries, err := os.ReadDir(images)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), "new-") && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(filepath.Join(images, e.Name()))
		}
	}
	return os.MkdirTemp(images, "new-")
}

// put gives a new image its place. What was there goes only when all that can fail has been done: a Join of these would go on after the first error.
func put(temp, final string) error {
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	return os.Rename(temp, final)
}

// while is a reader that ends with its context.
type while struct {
	ctx context.Context
	r   io.Reader
}

func (w while) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.r.Read(p)
}

// pack turns the archive into the files of an image in dir.
func pack(ctx context.Context, archive, dir string) (err error) {
	from, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer from.Close()
	root, err := os.Create(filepath.Join(dir, rootFile))
	if err != nil {
		return err
	}
	defer root.Close()
	kernel, err := os.Create(filepath.Join(dir, kernelFile))
	if err != nil {
		return err
	}
	defer kernel.Close()
	rootSum, kernelSum := sha256.New(), sha256.New()
	if err := convert(while{ctx, from}, io.MultiWriter(root, rootSum), io.MultiWriter(kernel, kernelSum)); err != nil {
		return err
	}
	return errors.Join(root.Close(), kernel.Close(), os.WriteFile(filepath.Join(dir, digestFile), []byte(digest(rootSum, kernelSum)+"\n"), 0o644))
}

// WithAgent writes the image's root file system with the agent as its init program to path. It is a HostError if the image is not as it was made: after a crash
// of the host its files may be there and empty.
func (i Image) WithAgent(agent []byte, path string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	rootSum, kernelSum := sha256.New(), sha256.New()
	if err := errors.Join(copyFile(io.MultiWriter(out, rootSum), i.Root), copyFile(kernelSum, i.Kernel)); err != nil {
		return err
	}
	if digest(rootSum, kernelSum) != i.Digest {
		dir := filepath.Dir(i.Root)
		return &HostError{fmt.Errorf("boot the image in %s: it is damaged, its files do not have the digest that it names; make it anew with `plait lab image --kernel %s`", dir, filepath.Base(dir))}
	}
	// The kernel unpacks concatenated archives one after the other.
	return errors.Join(writeAgent(out, agent), out.Close())
}

func copyFile(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}

// digest is that of an image, of the SHA-256 of its root file system and its kernel.
func digest(root, kernel hash.Hash) string {
	sum := sha256.Sum256(slices.Concat(root.Sum(nil), kernel.Sum(nil)))
	return hex.EncodeToString(sum[:])
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

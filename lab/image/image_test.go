package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Only the kernel, and FRR with that of Debian 12, comes from another suite than the guest's own.
func TestArguments(t *testing.T) {
	for kernel, pin := range map[string]string{"6.1": "linux-* frr libyang2\nPin: release n=bookworm\n", "7.2": "linux-*\nPin: release n=trixie-backports\n"} {
		line := strings.Join(mmdebstrapArguments(kernel, "root.tar"), " ")
		if !strings.HasSuffix(line, " trixie root.tar") || !strings.Contains(line, "Package: "+pin) {
			t.Errorf("kernel %s: %s", kernel, line)
		}
	}
	if line := strings.Join(mmdebstrapArguments(DefaultKernel, "root.tar"), " "); strings.Contains(line, "Pin:") {
		t.Errorf("the kernel of the guest's own suite is pinned: %s", line)
	}
}

func TestBuildRefuses(t *testing.T) {
	if _, err := Build(context.Background(), t.TempDir(), "5.10", nil); err == nil || !strings.Contains(err.Error(), "6.1, 6.12, 7.2") {
		t.Errorf("error %v does not say which kernels there are", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Build(context.Background(), t.TempDir(), "6.12", nil); err == nil || !strings.Contains(err.Error(), "apt-get install mmdebstrap") {
		t.Errorf("error %v does not say what to install", err)
	}
}

// A build that fails says what mmdebstrap said and what it needs, and leaves the image there was.
func TestBuildFails(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte("#!/bin/sh\necho I: extracting archives...; echo no network >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	old := filepath.Join(cache, "image", "6.12")
	if err := os.MkdirAll(old, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{digestFile: "abc\n", recipeFile: recipe("6.12")} {
		if err := os.WriteFile(filepath.Join(old, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	tell := func(s string) { told = append(told, s) }
	if _, err := Build(context.Background(), cache, "6.12", tell); err == nil || !strings.Contains(err.Error(), "no network") || !strings.Contains(err.Error(), "unshare") {
		t.Errorf("error %v", err)
	}
	if len(told) != 2 || !strings.HasSuffix(told[1], "unpacking it, step 3 of 9") {
		t.Errorf("told %q", told)
	}
	if img, ok := Find(cache, "6.12"); !ok || img.Digest != "abc" {
		t.Errorf("the old image is gone: %+v", img)
	}
	if left, _ := os.ReadDir(filepath.Join(cache, "image")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	// An image of another version, which may lack programs, is none.
	if err := os.WriteFile(filepath.Join(old, recipeFile), []byte(recipe("6.1")), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok := Find(cache, "6.12"); ok {
		t.Error("an image made by another recipe was found")
	}
}

// An image that cannot be written to its end leaves the one there was.
func TestBuildCannotWrite(t *testing.T) {
	bin, cache := t.TempDir(), small(t, recipe("6.12"))
	if err := os.WriteFile(filepath.Join(bin, "root.tar"), archive(t, kernelEntry).Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	const script = "#!/bin/sh\nfor archive; do :; done\ncp ${0%/*}/root.tar $archive && mkdir ${archive%/*}/" + recipeFile + "\n" // in the way of the recipe
	if err := os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if _, err := Build(t.Context(), cache, "6.12", func(string) {}); err == nil || !strings.Contains(err.Error(), recipeFile) {
		t.Errorf("error %v", err)
	}
	if _, ok := Find(cache, "6.12"); !ok {
		t.Error("the image that was there is gone")
	}
	if err := put(filepath.Join(cache, "nowhere"), filepath.Join(cache, "image", "6.12")); err == nil {
		t.Error("an image that there is not has got a place")
	}
	if _, ok := Find(cache, "6.12"); !ok {
		t.Error("the image that was there is gone for one that there is not")
	}
}

// mmdebstrap does not say that it is newuidmap that a user lacks; root needs none.
func TestRemedy(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	if got := remedy(1000); !strings.HasSuffix(got, "install it with `apt-get install uidmap`") {
		t.Errorf("without newuidmap a user is told: %s", got)
	}
	if got := remedy(0); strings.Contains(got, "uidmap") {
		t.Errorf("root is told: %s", got)
	}
	if err := os.WriteFile(filepath.Join(bin, "newuidmap"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := remedy(1000); strings.Contains(got, "uidmap") {
		t.Errorf("with newuidmap a user is told: %s", got)
	}
}

// Interrupted while it makes the initramfs, a build ends, too, and leaves nothing.
func TestBuildInterrupted(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\nset -e\nfor archive; do :; done\nmkdir -p boot\n: > boot/vmlinuz-6.12\ntar cf \"$archive\" boot\n"
	if err := os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	tell := func(s string) {
		if strings.Contains(s, "initramfs") {
			cancel(interrupted)
		}
	}
	if _, err := Build(ctx, cache, "6.12", tell); !errors.Is(err, interrupted) {
		t.Errorf("error %v, want %v", err, interrupted)
	}
	if left, _ := os.ReadDir(filepath.Join(cache, "image")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What a plait that was killed left of an image is removed when the next one is made; what another one may be making is not.
func TestBuildRemovesLeftovers(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	bin, cache := os.Getenv("PATH"), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"new-old": 2 * time.Hour, "new-young": time.Minute, "6.1": 2 * time.Hour} {
		dir := filepath.Join(cache, "image", name)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, rootFile), nil, 0o644), os.Chtimes(dir, time.Now(), time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Build(t.Context(), cache, "6.12", func(string) {}); err == nil {
		t.Fatal("built by nothing")
	}
	var left []string
	entries, _ := os.ReadDir(filepath.Join(cache, "image"))
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, []string{"6.1", "new-young"}) {
		t.Errorf("left: %q", left)
	}
}

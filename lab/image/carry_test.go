package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// small is a cache with a small image of that recipe.
func small(t *testing.T, made string) string {
	t.Helper()
	cache := t.TempDir()
	dir := filepath.Join(cache, "image", "6.12")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, kernel := sha256.Sum256([]byte("root")), sha256.Sum256([]byte("kernel"))
	sum := sha256.Sum256(slices.Concat(root[:], kernel[:]))
	for name, text := range map[string]string{rootFile: "root", kernelFile: "kernel", digestFile: hex.EncodeToString(sum[:]) + "\n", recipeFile: made} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return cache
}

// unused is the lock of a cache that nobody else uses.
func unused(string) (func(), error) { return func() {}, nil }

// An image is the same on the machine it is carried to, and the archive is the same whenever it is written.
func TestCarry(t *testing.T) {
	from, to := small(t, recipe("6.12")), t.TempDir()
	var archive, again bytes.Buffer
	if err := Export(t.Context(), from, "6.12", &archive); err != nil {
		t.Fatal(err)
	}
	if err := Export(t.Context(), from, "6.12", &again); err != nil || !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Errorf("written again it is another archive (%v)", err)
	}
	got, err := Import(t.Context(), to, &archive, unused)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := Find(from, "6.12")
	root, err := os.ReadFile(got.Root)
	if err != nil || string(root) != "root" || got.Digest != want.Digest {
		t.Errorf("%+v, %q, %v", got, root, err)
	}
	if left, _ := os.ReadDir(filepath.Join(to, "image")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// What is no whole image of this version replaces none.
func TestCarryRefuses(t *testing.T) {
	var good, spoilt, other bytes.Buffer
	if err := Export(t.Context(), t.TempDir(), "6.12", &good); err == nil || !strings.Contains(err.Error(), "plait lab image --kernel 6.12") {
		t.Errorf("nothing to export: %v", err)
	}
	if err := Export(t.Context(), small(t, recipe("6.12")), "6.12", &good); err != nil {
		t.Fatal(err)
	}
	damaged := small(t, recipe("6.12"))
	if err := os.WriteFile(filepath.Join(damaged, "image", "6.12", rootFile), []byte("toor"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Export(t.Context(), damaged, "6.12", &spoilt); err != nil {
		t.Fatal(err)
	}
	if err := exportFiles(t.Context(), small(t, recipe("6.1")), "6.12", &other); err != nil { // as a plait with another recipe does
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"cut":      {good.Bytes()[:good.Len()/2], "import image: "},
		"no image": {[]byte("# results\n"), "plait lab image --export"},
		"damaged":  {spoilt.Bytes(), "the archive is damaged"},
		"another":  {other.Bytes(), "another version of plait"},
	} {
		cache := small(t, recipe("6.12"))
		_, err := Import(t.Context(), cache, bytes.NewReader(c.archive), unused)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if host := new(HostError); !errors.As(err, &host) {
			t.Errorf("%s: %T, whose exit status is that of a run that failed", name, err)
		}
		if _, ok := Find(cache, "6.12"); !ok {
			t.Errorf("%s: the image that was there is gone", name)
		}
	}
}

// Both directions end when they are interrupted, and leave nothing.
func TestCarryInterrupted(t *testing.T) {
	var archive, cut bytes.Buffer
	from, to := small(t, recipe("6.12")), t.TempDir()
	if err := Export(t.Context(), from, "6.12", &archive); err != nil {
		t.Fatal(err)
	}
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted)
	if err := Export(ctx, from, "6.12", &cut); !errors.Is(err, interrupted) {
		t.Errorf("export: %v", err)
	}
	if _, err := Import(ctx, to, &archive, unused); !errors.Is(err, interrupted) {
		t.Errorf("import: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(to, "image")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A machine is booted of an image that is as it was made alone: of another one the guest's kernel would complain, in its own words.
func TestDamagedImage(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"whole":          func(string) error { return nil },
		"root cut":       func(dir string) error { return os.Truncate(filepath.Join(dir, rootFile), 1) },
		"kernel changed": func(dir string) error { return os.WriteFile(filepath.Join(dir, kernelFile), []byte("lenrek"), 0o644) },
	} {
		cache := small(t, recipe("6.12"))
		img, _ := Find(cache, "6.12")
		err := errors.Join(spoil(filepath.Dir(img.Root)), img.WithAgent([]byte("agent"), filepath.Join(t.TempDir(), "initrd")))
		var host *HostError
		if damaged := name != "whole"; errors.As(err, &host) != damaged || damaged && !strings.Contains(err.Error(), "plait lab image --kernel 6.12") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"plait.dev/plait/lab/image"
	"plait.dev/plait/lab/result"
)

// Image makes the image of a kernel generation anew, and shows how far it is.
func (l *Lab) Image(ctx context.Context, kernel string) (image.Image, error) {
	p := newProgress(l.Terminal, "image", nil)
	defer p.close()
	unlock, err := l.lockImage(ctx, kernel, p.doing)
	if err != nil {
		return image.Image{}, err
	}
	defer unlock()
	return image.Build(ctx, l.Cache, kernel, p.doing)
}

// lockImage keeps others from making the image of a kernel generation, and from booting a machine of it.
func (l *Lab) lockImage(ctx context.Context, kernel string, doing func(string)) (unlock func(), err error) {
	return l.lock(ctx, "image-"+kernel, doing)
}

// ExportImage writes the image of a kernel generation to a file, as it is in the cache.
func (l *Lab) ExportImage(ctx context.Context, kernel, path string) (image.Image, error) {
	doing, end := Busy("image")
	defer end()
	doing("writing " + path)
	if err := result.Replaceable(path); err != nil {
		return image.Image{}, &image.HostError{Err: fmt.Errorf("export image: %w", err)}
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-")
	if err != nil {
		return image.Image{}, err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(image.Export(ctx, l.Cache, kernel, f), f.Chmod(0o644), f.Close()); err != nil {
		return image.Image{}, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return image.Image{}, err
	}
	img, _ := image.Find(l.Cache, kernel)
	return img, nil
}

// ImportImage takes an image from such a file into the cache.
func (l *Lab) ImportImage(ctx context.Context, path string) (image.Image, error) {
	doing, end := Busy("image")
	defer end()
	doing("reading " + path)
	f, err := os.Open(path)
	if err != nil {
		return image.Image{}, err
	}
	defer f.Close()
	return image.Import(ctx, l.Cache, f, func(kernel string) (func(), error) { return l.lockImage(ctx, kernel, doing) })
}

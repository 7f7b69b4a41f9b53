package image

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// files of an image, in the order in which an archive has them.
var files = []string{recipeFile, digestFile, kernelFile, rootFile}

// Export writes the image of a kernel generation that is in the cache directory as an archive, from which Import makes the same on another
// machine. The same image gives the same bytes.
func Export(ctx context.Context, cache, kernel string, to io.Writer) error {
	if _, ok := Find(cache, kernel); !ok {
		return &HostError{fmt.Errorf("export image: none of kernel %s is in the cache; make it with `plait lab image --kernel %s`", kernel, kernel)}
	}
	return exportFiles(ctx, cache, kernel, to)
}

// exportFiles writes the files of an image as they are.
func exportFiles(ctx context.Context, cache, kernel string, to io.Writer) error {
	packed, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packed)
	for _, name := range files {
		if err := addFile(ctx, archive, filepath.Join(cache, "image", kernel, name), path.Join(kernel, name)); err != nil {
			return fmt.Errorf("export image: %w", err)
		}
	}
	return errors.Join(archive.Close(), packed.Close())
}

func addFile(ctx context.Context, archive *tar.Writer, file, name string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(archive, while{ctx, f})
	return err
}

// Import takes the image out of an archive of Export into the cache directory, in place of the one of its kernel generation that is there. An archive
// that is damaged, or of a plait that makes other images, leaves that as it was. It is replaced while lock keeps others from using it.
func Import(ctx context.Context, cache string, from io.Reader, lock func(kernel string) (unlock func(), err error)) (Image, error) {
	images := filepath.Join(cache, "image")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return Image{}, err
	}
	if err := NeedDisk("import image", images, freeDiskMin); err != nil {
		return Image{}, err
	}
	temp, err := newDir(images)
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(temp)
	kernel, err := unpack(while{ctx, from}, temp)
	if err != nil {
		return Image{}, &HostError{fmt.Errorf("import image: %w", err)}
	}
	unlock, err := lock(kernel)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	final := filepath.Join(images, kernel)
	if err := put(temp, final); err != nil {
		return Image{}, fmt.Errorf("import image: %w", err)
	}
	image, _ := Find(cache, kernel)
	return image, nil
}

// unpack writes the files of an archive to dir, and says of which kernel generation they are if they are what Export wrote.
func unpack(from io.Reader, dir string) (kernel string, err error) {
	packed, err := gzip.NewReader(from)
	if err != nil {
		return "", fmt.Errorf("read archive: %w; give a file that `plait lab image --export` has written", err)
	}
	archive := tar.NewReader(packed)
	sums := map[string]hash.Hash{}
	for _, name := range files {
		header, err := archive.Next()
		if err != nil {
			return "", fmt.Errorf("read %s of the archive: %w", name, err)
		}
		if kernel = path.Dir(header.Name); path.Base(header.Name) != name || !slices.Contains(Kernels(), kernel) {
			return "", fmt.Errorf("the archive has %q where %s of an image should be", header.Name, name)
		}
		out, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		sum := sha256.New()
		_, err = io.Copy(io.MultiWriter(out, sum), archive)
		if err := errors.Join(err, out.Close()); err != nil {
			return "", fmt.Errorf("unpack %s: %w", name, err)
		}
		sums[name] = sum
	}
	if made := sha256.Sum256([]byte(recipe(kernel))); string(made[:]) != string(sums[recipeFile].Sum(nil)) {
		return "", errors.New("the image was made for another version of plait; use that one, or make the image anew there")
	}
	if named, err := os.ReadFile(filepath.Join(dir, digestFile)); err != nil || string(named) != digest(sums[rootFile], sums[kernelFile])+"\n" {
		return "", errors.Join(errors.New("the archive is damaged: its files do not have the digest that it names"), err)
	}
	return kernel, nil
}

package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// archive makes a tar archive of a small tree.
func archive(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		body := ""
		if h.Typeflag == tar.TypeReg {
			body = "content of " + h.Name
			h.Size = int64(len(body))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// list reads a newc archive as the kernel does: a header of fixed hexadecimal fields, name and body padded to four bytes.
func list(t *testing.T, data []byte) (entries []string) {
	t.Helper()
	align := func(n int) int { return (n + 3) &^ 3 }
	for at := 0; at < len(data); {
		if string(data[at:at+6]) != "070701" {
			t.Fatalf("no header at %d", at)
		}
		field := func(i int) (v int) {
			if _, err := fmt.Sscanf(string(data[at+6+8*i:at+14+8*i]), "%x", &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
		mode, uid, size, nameSize := field(1), field(2), field(6), field(11)
		name := string(data[at+110 : at+110+nameSize-1])
		body := align(at + 110 + nameSize)
		entries = append(entries, fmt.Sprintf("%s %o %d %d:%d %q", name, mode, uid, field(9), field(10), data[body:body+size]))
		at = align(body + size)
	}
	return entries
}

var kernelEntry = tar.Header{Name: "./boot/vmlinuz-6.12", Typeflag: tar.TypeReg, Mode: 0o644}

func TestConvert(t *testing.T) {
	tree := archive(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./etc/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./etc/motd", Typeflag: tar.TypeReg, Mode: 0o640, Uid: 7},
		tar.Header{Name: "./bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin", Mode: 0o777},
		tar.Header{Name: "./etc/again", Typeflag: tar.TypeLink, Linkname: "./etc/motd", Mode: 0o640},
		tar.Header{Name: "./dev/console", Typeflag: tar.TypeChar, Mode: 0o600, Devmajor: 5, Devminor: 1},
		tar.Header{Name: "./usr/share/doc/x/README", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "./usr/lib/modules/6.12/kernel/fs/ext4.ko", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "./usr/lib/modules/6.12/kernel/net/sctp.ko", Typeflag: tar.TypeReg, Mode: 0o644},
		kernelEntry)
	var root, kernel bytes.Buffer
	if err := convert(tree, &root, &kernel); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`etc 40755 0 0:0 ""`,
		`etc/motd 100640 7 0:0 "content of ./etc/motd"`,
		`bin 120777 0 0:0 "usr/bin"`,
		`etc/again 120640 0 0:0 "/etc/motd"`,
		`dev/console 20600 0 5:1 ""`,
		`usr/lib/modules/6.12/kernel/net/sctp.ko 100644 0 0:0 "content of ./usr/lib/modules/6.12/kernel/net/sctp.ko"`,
		`TRAILER!!! 0 0 0:0 ""`,
	}
	if got := list(t, root.Bytes()); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := kernel.String(); got != "content of ./boot/vmlinuz-6.12" {
		t.Errorf("kernel %q", got)
	}
}

func TestConvertRefuses(t *testing.T) {
	var root, kernel bytes.Buffer
	if err := convert(archive(t), &root, &kernel); err == nil || !strings.Contains(err.Error(), "no kernel") {
		t.Errorf("a tree without a kernel: error %v", err)
	}
	whole := archive(t, kernelEntry).Bytes()
	if err := convert(bytes.NewReader(whole[:520]), &root, &kernel); err == nil {
		t.Error("half an archive was converted")
	}
}

func TestWriteAgent(t *testing.T) {
	var b bytes.Buffer
	if err := writeAgent(&b, []byte("program")); err != nil {
		t.Fatal(err)
	}
	want := []string{`init 100755 0 0:0 "program"`, `usr/bin/plait 120777 0 0:0 "/init"`, `TRAILER!!! 0 0 0:0 ""`}
	if got := list(t, b.Bytes()); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", got)
	}
}

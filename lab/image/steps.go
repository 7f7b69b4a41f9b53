package image

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// steps keeps what mmdebstrap says, and tells how far the image is.
type steps struct {
	doing func(string)
	said  bytes.Buffer
	read  int // bytes of said that have been looked at
}

// allSteps are the steps of an image in order: how mmdebstrap's line about one begins, and what it is.
var allSteps = [][2]string{
	{"I: running apt-get update", "reading Debian's package lists"},
	{"I: downloading packages", "downloading the base system"},
	{"I: extracting archives", "unpacking it"},
	{"I: installing essential packages", "installing it"},
	{"I: installing remaining packages", "downloading and installing programs"},
	{"I: running --customize-hook in shell: sh -c 'chroot", "downloading and installing the kernel"},
	{"I: cleaning package lists", "cleaning up"},
	{"I: creating tarball", "archiving it"},
	{packing, "making an initramfs"},
}

// packing is the step that is ours.
const packing = "I: packing"

// Write takes in what mmdebstrap prints.
func (s *steps) Write(b []byte) (int, error) {
	s.said.Write(b)
	for {
		line, _, whole := bytes.Cut(s.said.Bytes()[s.read:], []byte("\n"))
		if !whole {
			return len(b), nil
		}
		s.read += len(line) + 1
		s.tell(string(line))
	}
}

// tell tells the step that a line announces, if it does.
func (s *steps) tell(line string) {
	i := slices.IndexFunc(allSteps, func(step [2]string) bool { return strings.HasPrefix(line, step[0]) })
	if i >= 0 {
		s.doing(fmt.Sprintf("making the guest image: %s, step %d of %d", allSteps[i][1], i+1, len(allSteps)))
	}
}

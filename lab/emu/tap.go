package emu

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// tap is the TAP device at one end of a link: what the namespace sends is read from it, what is written to it the
// namespace receives. Offloads stay off, so every frame is one packet as on a wire, with its checksum filled in.
type tap struct {
	fd  int
	end End
}

// openTAP makes the device in its namespace, up. It vanishes with the process.
func openTAP(e End, mtu int) (*tap, error) {
	t := &tap{end: e}
	if err := netns.Do(e.NS, func() error { return t.open(mtu) }); err != nil {
		return nil, fmt.Errorf("make TAP device %s in namespace %s: %w", e.Interface, e.NS, err)
	}
	return t, nil
}

// open runs on a thread in the namespace: the device appears in that of the thread that opens /dev/net/tun.
func (t *tap) open(mtu int) error {
	var err error
	if t.fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(t.end.Interface)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(t.fd, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("ioctl TUNSETIFF: %w", err)
	}
	device, err := netlink.LinkByName(t.end.Interface)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetHardwareAddr(device, t.end.MAC), netlink.LinkSetMTU(device, mtu), netlink.LinkSetUp(device))
}

// setCarrier makes the namespace see the cable plugged in or not.
func (t *tap) setCarrier(up bool) error {
	value := 0
	if up {
		value = 1
	}
	if err := unix.IoctlSetPointerInt(t.fd, unix.TUNSETCARRIER, value); err != nil {
		return fmt.Errorf("set carrier of %s in %s: %w", t.end.Interface, t.end.NS, err)
	}
	return nil
}

// read reads one frame into buffer, or returns false if there is none.
func (t *tap) read(buffer []byte) (n int, ok bool, err error) {
	n, errno := rawRead(t.fd, buffer)
	switch errno {
	case 0:
		return n, true, nil
	case unix.EAGAIN, unix.EINTR:
		return 0, false, nil
	}
	return 0, false, fmt.Errorf("read from %s in %s: %w", t.end.Interface, t.end.NS, errno)
}

// write hands a frame to the namespace. It returns false if the device is down and does not take it.
func (t *tap) write(frame []byte) bool { return rawWrite(t.fd, frame) == 0 }

package image

import (
	"fmt"
	"syscall"
)

// HostError is something that this host lacks, or a file that is not what it should be. Nothing has run.
type HostError struct{ Err error }

func (e *HostError) Error() string { return e.Err.Error() }
func (e *HostError) Unwrap() error { return e.Err }

// NeedDisk is a HostError if the file system of dir has less than so many bytes free. what is what they are needed for.
func NeedDisk(what, dir string, bytes uint64) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return &HostError{fmt.Errorf("%s: look for free space in %s: %w", what, dir, err)}
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < bytes {
		return &HostError{fmt.Errorf("%s: %s has %d MiB free, %d are needed; free some or set PLAIT_CACHE to a directory elsewhere",
			what, dir, free>>20, bytes>>20)}
	}
	return nil
}

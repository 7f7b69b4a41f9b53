//go:build !amd64

package agent

import "errors"

// Other machines than amd64 have no I/O ports, and lab.New starts no guest of theirs.
func ioperm(int, int) error { return errors.ErrUnsupported }

func outByte(uint16, byte)        {}
func outWord(uint16, uint16)      {}
func outBytes(uint16, *byte, int) {}
func inBytes(uint16, *byte, int)  {}

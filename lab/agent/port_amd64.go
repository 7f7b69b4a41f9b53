package agent

import "golang.org/x/sys/unix"

func ioperm(port, n int) error { return unix.Ioperm(port, n, 1) }

func outByte(port uint16, value byte)
func outWord(port uint16, value uint16)
func outBytes(port uint16, data *byte, n int)
func inBytes(port uint16, data *byte, n int)

package proxy

import (
	"errors"
	"net"
	"syscall"

	"plait.dev/plait/stripe/internal/printable"
)

// why is the far side's reason for not reaching a target. What it says over the connection is the code, one byte, and the words.
type why string

func (w why) Error() string { return printable.Text(string(w[1:])) }

func whyOf(err error) why { return why(append([]byte{codeOf(err)}, err.Error()...)) }

// codeOf is what SOCKS5 calls an error (RFC 1928 section 6). A name that nobody knows and a host that does not answer are hosts that are not reached.
func codeOf(err error) byte {
	var w why
	var unknown *net.DNSError
	var slow net.Error
	switch {
	case errors.As(err, &w):
		return w[0]
	case errors.Is(err, syscall.ECONNREFUSED):
		return socksNobody
	case errors.Is(err, syscall.ENETUNREACH):
		return socksNoNetwork
	case errors.Is(err, syscall.EHOSTUNREACH), errors.As(err, &unknown), errors.As(err, &slow) && slow.Timeout():
		return socksNoHost
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return socksForbidden
	}
	return socksFailure
}

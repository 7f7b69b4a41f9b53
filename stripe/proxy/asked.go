package proxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
)

// SOCKS5 (RFC 1928), as much as a proxy without names and passwords needs.
const (
	socks5         = 5
	socksNoAuth    = 0
	socksConnect   = 1
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksFailure   = 1 // general failure
	socksForbidden = 2 // by a rule
	socksNoNetwork = 3 // network unreachable
	socksNoHost    = 4 // host unreachable
	socksNobody    = 5 // connection refused
	socksNoMethod  = 0xff
	socksRefused   = 7 // command not supported
	socksNoAddress = 8 // address type not supported
)

// SOCKS4, which is older than any RFC, is refused in its own words.
const (
	socks4        = 4
	socks4Refused = 91
)

// errNothing is of a connection that has ended before anything came.
var errNothing = errors.New("nothing was asked for")

// asked finds out where a program wants to go, in SOCKS5 or HTTP. answer tells it whether that worked. What begins as neither is not read on: the program may wait for
// an answer, and no line ever end. What the program has sent behind its request, without waiting for the answer, is left in r.
func asked(r *bufio.Reader, w io.Writer) (target string, answer func(error) error, err error) {
	first, err := r.Peek(1)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "", nil, fmt.Errorf("has said nothing for %v: only SOCKS5 and HTTP CONNECT are done here, and the program speaks first", askTime)
	case err != nil:
		return "", nil, errNothing
	}
	switch letter := first[0] | 0x20; { // a method of HTTP begins with one
	case first[0] == socks5:
		target, answer, err = askedSOCKS(r, w)
		return target, answer, unended(err)
	case first[0] == socks4:
		_, _ = w.Write([]byte{0, socks4Refused, 0, 0, 0, 0, 0, 0})
		return "", nil, errors.New("SOCKS4: only SOCKS5 and HTTP CONNECT are done here; set the program to one of them")
	case letter < 'a' || letter > 'z':
		return "", nil, fmt.Errorf("neither SOCKS5 nor HTTP: it begins with byte %#x", first[0])
	}
	return askedHTTP(r, w)
}

func askedHTTP(r *bufio.Reader, w io.Writer) (string, func(error) error, error) {
	q, err := http.ReadRequest(r)
	refused := "400 Bad Request"
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("HTTP: the request had no end after %v", askTime)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF): // the latter in its first line
		err = fmt.Errorf("HTTP: the request ended early, or is longer than %d bytes", askBytes)
	case err != nil:
		err = fmt.Errorf("neither SOCKS5 nor HTTP: %w", err)
	case q.Method != http.MethodConnect:
		refused, err = "405 Method Not Allowed", fmt.Errorf("HTTP method %s: only CONNECT is done here", q.Method)
	case q.Host == "":
		err = errors.New("HTTP: CONNECT to nowhere")
	}
	if err != nil {
		_, _ = fmt.Fprintf(w, "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", refused)
		return "", nil, err
	}
	return q.Host, func(err error) error {
		status := "200 OK"
		if err != nil {
			status = "502 Bad Gateway"
		}
		_, err = io.WriteString(w, "HTTP/1.1 "+status+"\r\n\r\n")
		return err
	}, nil
}

func askedSOCKS(r *bufio.Reader, w io.Writer) (string, func(error) error, error) {
	var b [2 + 255]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return "", nil, err
	}
	methods := b[2 : 2+int(b[1])]
	if _, err := io.ReadFull(r, methods); err != nil {
		return "", nil, err
	}
	if !slices.Contains(methods, socksNoAuth) {
		_, _ = w.Write([]byte{socks5, socksNoMethod})
		return "", nil, errors.New("SOCKS5: the program insists on a password")
	}
	if _, err := w.Write([]byte{socks5, socksNoAuth}); err != nil {
		return "", nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", nil, err
	}
	reply := func(code byte) error {
		_, err := w.Write([]byte{socks5, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
		return err
	}
	if head[0] != socks5 || head[1] != socksConnect {
		_ = reply(socksRefused)
		return "", nil, fmt.Errorf("SOCKS5: command %d: only CONNECT is done here", head[1])
	}
	host, err := socksHost(r, head[3])
	if err != nil {
		_ = reply(socksNoAddress)
		return "", nil, err
	}
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return "", nil, err
	}
	target := net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(b[:2]))))
	return target, func(err error) error {
		if err != nil {
			return reply(codeOf(err))
		}
		return reply(0)
	}, nil
}

// unended says in words that a request of SOCKS5 did not come to its end.
func unended(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("SOCKS5: the request had no end after %v", askTime)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("SOCKS5: the request ended early")
	}
	return err
}

// socksHost reads an address of a type.
func socksHost(r io.Reader, kind byte) (string, error) {
	n, known := map[byte]int{socksIPv4: 4, socksIPv6: 16, socksName: 0}[kind]
	if !known {
		return "", fmt.Errorf("SOCKS5: address of type %d", kind)
	}
	if kind == socksName {
		var length [1]byte
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return "", err
		}
		if n = int(length[0]); n == 0 {
			return "", errors.New("SOCKS5: CONNECT to nowhere")
		}
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return "", err
	}
	if kind == socksName {
		return string(b), nil
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr.String(), nil
}

package traffic

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
)

// contentPeriod is a prime: whatever is lost, sent twice or out of order in whole segments moves the content by no multiple of it.
const contentPeriod = 65521

// content is what streams, bursts and downloads send, over and over: bytes that tell where in the stream they belong.
var content = func() (c [contentPeriod + writeBytes]byte) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range contentPeriod {
		c[i] = byte(r.Uint32())
	}
	for i := contentPeriod; i < len(c); i++ { // longer than a period: copy would take what is not there yet
		c[i] = c[i-contentPeriod]
	}
	return c
}()

// contentAt is what belongs at an offset of the stream, n bytes or fewer: at most writeBytes.
func contentAt(offset, n int64) []byte {
	return content[offset%contentPeriod:][:min(n, writeBytes)]
}

// send writes n bytes of content, from an offset on.
func send(w io.Writer, offset, n int64) error {
	for end := offset + n; offset < end; {
		k, err := w.Write(contentAt(offset, end-offset))
		if err != nil {
			return err
		}
		offset += int64(k)
	}
	return nil
}

// checked reads content, and fails where it is not what was sent: a transport that loses, repeats or mixes up bytes has no goodput.
type checked struct {
	from   io.Reader
	offset int64
}

func (c *checked) Read(buf []byte) (int, error) {
	n, err := c.from.Read(buf[:min(len(buf), writeBytes)])
	if !bytes.Equal(buf[:n], contentAt(c.offset, int64(n))) {
		return 0, fmt.Errorf("compare what arrived with what was sent: some of the %d bytes from byte %d on are wrong", n, c.offset)
	}
	c.offset += int64(n)
	return n, err
}

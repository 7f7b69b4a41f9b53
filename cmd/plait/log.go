package main

import (
	"io"
	"os"
	"time"
)

// stamped puts the time before what is written, a line or an error of several.
type stamped struct{ to io.Writer }

func (s stamped) Write(text []byte) (int, error) {
	if _, err := s.to.Write(append(time.Now().AppendFormat(nil, "2006-01-02T15:04:05.000Z07:00 "), text...)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// ownLog is where this process logs. In the background that is a file of plait's own, which needs the time; systemd and terminals know it.
func ownLog() io.Writer {
	if os.Getenv(readyVariable) != "" {
		return stamped{os.Stderr}
	}
	return os.Stderr
}

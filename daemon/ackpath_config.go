package daemon

import (
	"strconv"

	"go.yaml.in/yaml/v3"

	"plait.dev/plait/ackpath"
)

// Ackpath is whether acknowledgements of this host's downloads are copied over quicker links, and whether this host takes such copies as a sender.
type Ackpath struct {
	// Mode of this host as receiver of downloads. Observe measures and says what would be copied.
	Mode Mode
	// Ratio is how many times the quick link's round trip the slow one's must be.
	Ratio float64
	// Port is the UDP port of senders, this host's own as well.
	Port int
	// Answer: as a sender this host takes copies (On), where the lever congestion is on, or does not (Off).
	Answer Mode
}

// maxRatio is a limit for what is a mistake.
const maxRatio = 100

// read reads the section.
func (a *Ackpath) read(r *reader, n *yaml.Node) {
	r.mapping(n, "ackpath", []key{
		oneOf("mode", &a.Mode, string(Off), string(Observe), string(On)),
		{"ratio", func(r *reader, n *yaml.Node) {
			x, err := strconv.ParseFloat(n.Value, 64)
			if n.Kind != yaml.ScalarNode || err != nil || !(x >= 1 && x <= maxRatio) {
				r.problem(n, "ratio: %s: expected a number from 1 to %d, the slow link's round trip over the quick one's", what(n), maxRatio)
				return
			}
			a.Ratio = x
		}},
		number("port", &a.Port, 65535),
		oneOf("answer", &a.Answer, string(Off), string(On)),
	})
}

// answers says whether this host takes copies as a sender.
func (c Config) answers() bool {
	if c.Ackpath.Answer != On {
		return false
	}
	for _, l := range c.levers() {
		if l.Mode == On {
			return true
		}
	}
	return false
}

func defaultAckpath() Ackpath {
	return Ackpath{Mode: Off, Ratio: ackpath.DefaultRatio, Port: ackpath.Port, Answer: On}
}

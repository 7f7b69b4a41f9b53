package signals

import (
	"fmt"
	"strings"
)

// Algorithm is a TCP congestion control. The numbers are those the kernel half reports: they never change, new ones are
// appended.
type Algorithm uint8

// The congestion controls of Linux, by the names of net.ipv4.tcp_available_congestion_control, and plait's own, burst.
const (
	Reno Algorithm = iota
	Cubic
	BIC
	HighSpeed
	HTCP
	Hybla
	Scalable
	Vegas
	Westwood
	BBR
	Burst
)

var algorithmNames = [...]string{
	Reno: "reno", Cubic: "cubic", BIC: "bic", HighSpeed: "highspeed", HTCP: "htcp", Hybla: "hybla", Scalable: "scalable",
	Vegas: "vegas", Westwood: "westwood", BBR: "bbr", Burst: "burst",
}

// Algorithms lists all algorithms in the order of their numbers.
func Algorithms() []Algorithm {
	all := make([]Algorithm, len(algorithmNames))
	for i := range all {
		all[i] = Algorithm(i)
	}
	return all
}

// String is the kernel's name of the algorithm, or its number if it has none.
func (a Algorithm) String() string {
	if int(a) >= len(algorithmNames) {
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
	return algorithmNames[a]
}

// MarshalText writes the kernel's name. A number without a name is an error: it could not be read back.
func (a Algorithm) MarshalText() ([]byte, error) {
	if int(a) >= len(algorithmNames) {
		return nil, fmt.Errorf("write congestion control: number %d has no name", uint8(a))
	}
	return []byte(algorithmNames[a]), nil
}

// UnmarshalText is ParseAlgorithm.
func (a *Algorithm) UnmarshalText(text []byte) error {
	parsed, err := ParseAlgorithm(string(text))
	if err == nil {
		*a = parsed
	}
	return err
}

// ParseAlgorithm finds an algorithm by the kernel's name for it.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, n := range algorithmNames {
		if n == name {
			return Algorithm(i), nil
		}
	}
	return 0, fmt.Errorf("unknown congestion control %q; there are %s", name, strings.Join(algorithmNames[:], ", "))
}

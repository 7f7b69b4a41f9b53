package egress

// Strategy is what a service wants of the exits that reach its client.
type Strategy string

// The strategies. What one does not let carry stands by: it has a subflow, and data only where no other has.
const (
	// Throughput uses all exits at once.
	Throughput Strategy = "throughput"
	// Steady does so too, for streams: it stays with that where several exits bring no more than one, because together they ride out what one does not.
	Steady Strategy = "steady"
	// Latency uses the exit with the least round-trip time alone.
	Latency Strategy = "latency"
	// Cheap uses those exits alone that cost least.
	Cheap Strategy = "cheap"
)

// Strategies are all of them, the usual one first.
func Strategies() []Strategy { return []Strategy{Throughput, Steady, Latency, Cheap} }

// Candidate is an exit that reaches a client and brings packets there.
type Candidate struct {
	Exit string
	// RTTUs is the round-trip time of this client's flows through it; 0: not known.
	RTTUs float64
	// Cost is compared with that of others, in any unit.
	Cost int
	// Spared says that the exit carries as much as it may, or loses too much.
	Spared bool
}

// A round-trip time is less than another if it is so by a fifth, and by more than clocks and queues of no concern explain.
const (
	quickerTimes = 0.8
	quickerUs    = 2000
)

func quicker(us, thanUs float64) bool { return us <= quickerTimes*thanUs && us <= thanUs-quickerUs }

// quickest stays with the exit in use unless another is clearly quicker. An exit without a round-trip time is taken only if none has one: nobody joins
// it, perhaps.
func quickest(all []Candidate, using string) string {
	var best, used *Candidate
	for i := range all {
		c := &all[i]
		if c.Exit == using {
			used = c
		}
		if c.RTTUs > 0 && (best == nil || c.RTTUs < best.RTTUs) {
			best = c
		}
	}
	switch {
	case best == nil && used == nil:
		return all[0].Exit
	case best == nil || used != nil && used.RTTUs > 0 && !quicker(best.RTTUs, used.RTTUs):
		return used.Exit
	}
	return best.Exit
}

// Carriers says which of the candidates are to carry data. All is in BGP's order, the best first; using is the one that Latency chose before. An exit that is
// spared carries only if all are.
func (s Strategy) Carriers(all []Candidate, using string) map[string]bool {
	var free []Candidate
	for _, c := range all {
		if !c.Spared {
			free = append(free, c)
		}
	}
	if len(free) == 0 {
		free = all
	}
	out := map[string]bool{}
	switch {
	case len(free) == 0:
	case s == Latency:
		out[quickest(free, using)] = true
	case s == Cheap:
		least := free[0].Cost
		for _, c := range free {
			least = min(least, c.Cost)
		}
		for _, c := range free {
			if c.Cost == least {
				out[c.Exit] = true
			}
		}
	default:
		for _, c := range free {
			out[c.Exit] = true
		}
	}
	return out
}

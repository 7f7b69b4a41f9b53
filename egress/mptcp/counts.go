package mptcp

// Counts are events since the Manager was made.
type Counts struct {
	Seen uint64 // connections that clients opened, those found by Resync again
	// Commands to the kernel that it carried out.
	Announces, Repeats, Removes, Destroys, Priorities uint64
	Joins                                             uint64 // subflows that clients added
	SubflowErrors                                     uint64 // subflows that ended by an error
	Gone                                              uint64 // commands that came after the end of their connection or subflow
	NotOurs                                           uint64 // connections left to the kernel's path manager
	Refused                                           uint64 // commands the kernel refused otherwise
	Deferred                                          uint64 // connections that waited because ChangesPerSecond was reached
	Resyncs                                           uint64 // times the whole picture was read
}

// Status is how things stand.
type Status struct {
	Connections int // that clients opened, without plain TCP
	Closing     int // of those that applications have closed, the ones still watched
	Subflows    int
	Announced   int // addresses, over all connections
	Waiting     int // connections in the queue
	Counts
}

// Status counts; it takes about 10 ns a connection.
func (m *Manager) Status() Status {
	s := Status{Waiting: m.waiting(), Counts: m.counts}
	for _, c := range m.byToken {
		if c.closing {
			s.Closing++
			continue
		}
		s.Connections++
		s.Subflows += len(c.subflows)
		s.Announced += len(c.announced)
	}
	return s
}

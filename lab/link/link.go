// Package link holds pure models of network links: when, if ever, does a packet that enters come out?
//
// A model knows nothing of sockets, namespaces or clocks: time is an argument. One model, one file. Every random process
// is seeded, and the same calls give the same answers on any machine. Run the tests with
//
//	go test ./lab/link
//
// A model is not safe for concurrent use.
package link

import "time"

// Packet is one packet in flight.
type Packet struct {
	// Bytes is the length that occupies the link: the IP packet and its link-layer header.
	Bytes int
	// Data travels along; models never look at it.
	Data []byte
}

// Model is one direction of a link, or a part of one. Times are virtual time since an arbitrary origin and never go
// backwards from call to call.
type Model interface {
	// Send takes a packet in at time now. The model may drop it.
	Send(now time.Duration, p Packet)
	// Next is the time at which the next packet comes out, or false if none will without a further Send. It may lie in
	// the past if Receive has not been called since. Of a Chain it is the time until which none comes out for certain.
	Next() (time.Duration, bool)
	// Receive takes out the next packet due at or before now, or false if there is none.
	Receive(now time.Duration) (Packet, bool)
	// Queued is how many packets and bytes wait for capacity; packets that are only delayed do not count.
	Queued() (packets, bytes int)
	// Dropped is how many packets the model has dropped since the start.
	Dropped() int64
}

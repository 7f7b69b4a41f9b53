package emu

import (
	"net"

	"plait.dev/plait/lab/experiment"
)

// Config is what the emulator starts with. Its links carry everything at once and without loss until the first change.
type Config struct {
	Links []Link `json:"links"`
}

// Link joins two TAP devices.
type Link struct {
	Name string `json:"name"`
	A    End    `json:"a"`
	B    End    `json:"b"`
	// MTU in bytes, of IP packets.
	MTU int `json:"mtu"`
}

// End is a TAP device to be made.
type End struct {
	// NS is the name of the network namespace (/run/netns).
	NS string `json:"ns"`
	// Interface is the device's name.
	Interface string `json:"interface"`
	// MAC is the device's address.
	MAC net.HardwareAddr `json:"mac"`
}

// Stats are the counters of a link since the start.
type Stats struct {
	// Forward is the direction from A to B.
	Forward DirectionStats `json:"forward"`
	// Backward is the direction from B to A.
	Backward DirectionStats `json:"backward"`
}

// DirectionStats are the counters of one direction.
type DirectionStats struct {
	// Packets and Bytes (with link-layer headers) that came out.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Drops for whatever reason, blackhole and lost carrier included.
	Drops uint64 `json:"drops"`
	// QueuePackets and QueueBytes wait for capacity now.
	QueuePackets int `json:"queue_packets"`
	QueueBytes   int `json:"queue_bytes"`
}

// request is one command, a JSON object on one line: exactly one of its fields. The first line is a Config instead.
type request struct {
	Change    *change    `json:"change,omitempty"`
	Blackhole *blackhole `json:"blackhole,omitempty"`
	Carrier   *carrier   `json:"carrier,omitempty"`
	Stats     *struct{}  `json:"stats,omitempty"`
}

// change gives a link its parameters, both directions complete.
type change struct {
	Link     string               `json:"link"`
	Forward  experiment.Direction `json:"forward"`
	Backward experiment.Direction `json:"backward"`
	Seed     uint64               `json:"seed"`
}

type blackhole struct {
	Link      string `json:"link"`
	Direction string `json:"direction"` // forward, backward, both or none
}

type carrier struct {
	Link string `json:"link"`
	Up   bool   `json:"up"`
}

// answer is the reply to one line.
type answer struct {
	Ready bool             `json:"ready,omitempty"`
	Stats map[string]Stats `json:"stats,omitempty"`
	Error string           `json:"error,omitempty"`
}

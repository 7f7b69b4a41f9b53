package bgp

import (
	"fmt"
	"time"
)

// maxList is how many AS numbers and how many extended communities a route may have: a message has room for 16,000, each route could have others, and all are
// kept. The longest paths of the Internet have some 50 different ones, and a few hundred by mistake.
const maxList = 255

// refusal says why a route is not taken. The reasons are a fixed set, so that no reflector can make plait count without end.
type refusal uint8

const (
	accepted refusal = iota
	malformed
	noSID
	unknownBehavior
	otherBehaviorFamily
	badStructure
	badLabel
	badSID
	noRouteTarget
	badNextHop
	mappedNextHop
	ownNextHop
	ownAS
	ownOriginator
	badPrefix
	badDistinguisher
	otherFamily
	tooLong
	refusals
)

var refusalWords = [refusals]string{
	malformed:           "an attribute is malformed or missing: the route counts as withdrawn (RFC 7606)",
	noSID:               "VPN route without an SRv6 L3 Service SID: does its border router export with a SID?",
	unknownBehavior:     "the SID's behavior is not End.DT4, End.DT6, End.DT46 or opaque",
	otherBehaviorFamily: "the SID's behavior is for the other IP version",
	badStructure:        "the SID structure is impossible: more than 128 bits, or bits transposed that are not in it or not in the label",
	badLabel:            "bits of the SID are transposed, but the label holds none (implicit null, or zero)",
	badSID:              "the SID is zero or no unicast IPv6 address",
	noRouteTarget:       "VPN route without a route target: it belongs to no exit",
	badNextHop:          "the next hop is zero, link-local or no unicast address",
	mappedNextHop:       "the next hop of an IPv6 route is an IPv4 address, to which the kernel routes no IPv6",
	ownNextHop:          "the next hop is this host: another BGP speaker of it announces the route",
	ownAS:               "the AS path has the AS of this network in it: a loop",
	ownOriginator:       "its originator has the router ID of this host: is the ID used twice?",
	badPrefix:           "the prefix is multicast or link-local",
	badDistinguisher:    "the route distinguisher is of none of the types 0, 1 and 2 (RFC 4364)",
	otherFamily:         "the address family was not agreed on for this session",
	tooLong:             fmt.Sprintf("more than %d AS numbers in the path, or as many extended communities: no network needs them, and they would cost memory", maxList),
}

func (r refusal) String() string { return refusalWords[r] }

// Refused is what was not taken, and why.
type Refused struct {
	Reason string
	Count  uint64 // of announcements, since the speaker began
	Routes uint64 // that the reflector tells now
	Last   string // route of the last one, or what is wrong with it
	At     time.Time
}

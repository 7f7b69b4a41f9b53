package stripe

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Policy is what a link may be used for. The zero value is: as much as it gives.
type Policy struct {
	// Share is the most of all bytes this link sends while links without a share work, above 0 to 1. 0 is no limit. A link
	// with a share carries everything if there is no other.
	Share float64 `json:",omitempty"`
	// CapBytes is how many bytes may go over the link, both directions and all connections of one Config together, counted
	// at this end without the headers of TCP and IP. Then the link is used no more. 0 is no limit; less than 16 KiB, a chunk, is refused.
	CapBytes uint64 `json:",omitempty"`
	// Backup is to use the link only while no other one works.
	Backup bool `json:",omitempty"`
	// Priority orders links: one of a higher number takes only what has waited 50 ms for each step, so it helps when the
	// links before it are full. 0 is first; at most 20.
	Priority int `json:",omitempty"`
}

// Validate reports what is out of range.
func (p Policy) Validate() error {
	switch {
	case !(p.Share >= 0 && p.Share <= 1):
		return fmt.Errorf("share %v: use a number above 0, up to 1", p.Share)
	case p.Priority < 0 || p.Priority > 20:
		return fmt.Errorf("priority %d: use 0 (first) to 20", p.Priority)
	case p.spent(0):
		return fmt.Errorf("cap %d: too little for one chunk, which is %d bytes; use more, or leave the link out", p.CapBytes, maxPayload)
	}
	return nil
}

// spent reports whether a full chunk more would exceed the cap.
func (p Policy) spent(used uint64) bool { return p.CapBytes > 0 && used+maxPayload > p.CapBytes }

// usage counts what goes over links with caps by all connections of one Config: bytes, both directions together.
type usage struct {
	mu sync.Mutex
	by map[use]*atomic.Uint64
}

// use is a link of this host, or of a peer.
type use struct {
	own  bool
	peer PublicKey
	link string
}

// maxUses bounds what peers that make up links fill; what comes beyond is counted for one connection only, but for this host's links.
const maxUses = 4096

func (u *usage) of(of use) *atomic.Uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.by[of]
	if n == nil {
		n = new(atomic.Uint64)
		if u.by == nil {
			u.by = map[use]*atomic.Uint64{}
		}
		if of.own || len(u.by) < maxUses {
			u.by[of] = n
		}
	}
	return n
}

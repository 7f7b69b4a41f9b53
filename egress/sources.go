package egress

import "net/netip"

// source is where a route comes from, less what tells apart the routes of one prefix.
type source struct {
	reflector     netip.Addr
	distinguisher string
}

// origin is the source of uses paths.
type origin struct {
	source
	uses int
}

// join returns the number of a source, for one path more.
func (p *Plan) join(s source) uint32 {
	number, known := p.bySource[s]
	if !known {
		if len(p.spare) == 0 {
			p.spare, p.sources = append(p.spare, uint32(len(p.sources))), append(p.sources, origin{})
		}
		number, p.spare = p.spare[len(p.spare)-1], p.spare[:len(p.spare)-1]
		p.bySource[s], p.sources[number].source = number, s
	}
	p.sources[number].uses++
	return number
}

// leave gives the number of a source back, when its last path goes: reflectors may make up new ones for ever.
func (p *Plan) leave(number uint32) {
	o := &p.sources[number]
	if o.uses--; o.uses == 0 {
		delete(p.bySource, o.source)
		p.spare = append(p.spare, number)
	}
}

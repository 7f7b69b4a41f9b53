package topo

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"plait.dev/plait/lab/experiment"
)

// box is a drawn node. Each link is joined to a line of its own, on the left or the right side.
type box struct {
	node        *node
	text        []string
	left, right []*cable
	x, y        int // of the top left corner
}

// cable is a drawn link: a line between ports, with a vertical part if they are not all on one line.
type cable struct {
	link  *link
	ports []port
}

type port struct {
	box   *box
	right bool // of the box
	line  int  // of the box, 0 is the first one inside
}

func (p port) y() int { return p.box.y + 1 + p.line }

func (b *box) width() int {
	w := 0
	for _, s := range b.text {
		w = max(w, len(s))
	}
	return w + 4
}

func (b *box) height() int { return max(len(b.text), len(b.left), len(b.right)) + 2 }

// drawing places the boxes in columns by their distance from the first host; the links between two columns, and those
// inside the left one, are drawn in the channel between them.
type drawing struct {
	columns  [][]*box
	channels [][]*cable
}

// Draw returns the topology as text: the nodes and, below, what each link does to packets.
func (t *Topology) Draw() string {
	if len(t.nodes) == 0 {
		return ""
	}
	d := t.columns()
	for i := range d.columns {
		d.place(i)
	}
	return d.paint() + "\n" + t.linkTable()
}

// columns assigns every node its column: a breadth-first search from the first node with a single link, so that a chain
// starts at its end.
func (t *Topology) columns() *drawing {
	d := &drawing{}
	column := map[*node]int{}
	boxes := map[*node]*box{}
	visit := func(n *node, c int) {
		column[n] = c
		boxes[n] = &box{node: n, text: []string{n.name}}
		if n.router != nil {
			boxes[n].text = append(boxes[n].text, fmt.Sprintf("AS %d", n.router.ASN))
		}
		for len(d.columns) <= c {
			d.columns = append(d.columns, nil)
			d.channels = append(d.channels, nil)
		}
		d.columns[c] = append(d.columns[c], boxes[n])
	}
	starts := slices.Clone(t.nodes)
	slices.SortStableFunc(starts, func(a, b *node) int { return min(len(a.ends), 2) - min(len(b.ends), 2) })
	for _, start := range starts {
		if boxes[start] != nil {
			continue
		}
		visit(start, 0)
		for queue := []*node{start}; len(queue) > 0; queue = queue[1:] {
			for _, e := range queue[0].ends {
				for _, o := range e.link.ends {
					if boxes[o.node] == nil {
						visit(o.node, column[queue[0]]+1)
						queue = append(queue, o.node)
					}
				}
			}
		}
	}
	for _, l := range t.links {
		first := column[l.ends[0].node]
		for _, e := range l.ends {
			first = min(first, column[e.node])
		}
		d.channels[first] = append(d.channels[first], connect(l, func(n *node) (*box, bool) { return boxes[n], column[n] == first }))
	}
	return d
}

// connect gives a link a line on each of its boxes: on the right side of those in the left column.
func connect(l *link, find func(*node) (b *box, onRight bool)) *cable {
	drawn := &cable{link: l}
	for _, e := range l.ends {
		b, onRight := find(e.node)
		side := &b.left
		if onRight {
			side = &b.right
		}
		drawn.ports = append(drawn.ports, port{box: b, right: onRight, line: len(*side)})
		*side = append(*side, drawn)
	}
	return drawn
}

// place sets the heights of a column's boxes: each on the level of what it is joined to, if there is room.
func (d *drawing) place(i int) {
	free := 0
	for _, b := range d.columns[i] {
		b.y = free
		if i > 0 && len(b.left) > 0 {
			b.y = max(free, b.left[0].leftPort().y()-1)
			for d.collides(i-1, b) {
				b.y++
			}
		}
		free = b.y + b.height()
	}
}

// leftPort is the first end of the cable in the left column.
func (n *cable) leftPort() port {
	return n.ports[slices.IndexFunc(n.ports, func(p port) bool { return p.right })]
}

// collides reports whether a line into the box would run into one of another link that comes from the left.
func (d *drawing) collides(channel int, b *box) bool {
	for line, own := range b.left {
		for _, other := range d.channels[channel] {
			if other != own && slices.ContainsFunc(other.ports, func(p port) bool { return p.right && p.y() == b.y+1+line }) {
				return true
			}
		}
	}
	return false
}

func (d *drawing) paint() string {
	c := canvas{}
	x := 0
	for i, column := range d.columns {
		width := 0
		for _, b := range column {
			width = max(width, b.width())
		}
		for _, b := range column {
			b.x = x
			b.paint(c, width)
		}
		x = d.paintChannel(c, i, x+width-1)
	}
	return c.String()
}

func (b *box) paint(c canvas, width int) {
	right, bottom := b.x+width-1, b.y+b.height()-1
	c.horizontal(b.x, right, b.y, nil)
	c.horizontal(b.x, right, bottom, nil)
	c.vertical(b.x, b.y, bottom, nil)
	c.vertical(right, b.y, bottom, nil)
	for i, s := range b.text {
		c.write(b.x+2, b.y+1+i, s)
	}
}

// paintChannel draws the links of a channel that begins at the right edge x of a column, and returns the left edge of the
// next column: first the names, then a vertical track for each link that needs one.
func (d *drawing) paintChannel(c canvas, i, x int) int {
	track := x
	for _, n := range d.channels[i] {
		track = max(track, x+len(n.link.name)+4)
	}
	end := track + 1
	for _, n := range d.channels[i] {
		if !n.straight() {
			end += 2
		}
	}
	for _, n := range d.channels[i] {
		at := end
		if !n.straight() {
			at = track
			track += 2
			n.paintTrack(c, at)
		}
		for _, p := range n.ports {
			if p.right {
				c.horizontal(x, at, p.y(), n)
			} else {
				c.horizontal(at, end, p.y(), n)
			}
		}
		c.write(x+2, n.leftPort().y(), " "+n.link.name+" ")
	}
	return end
}

// straight reports whether all ports are on one line.
func (n *cable) straight() bool {
	return !slices.ContainsFunc(n.ports, func(p port) bool { return p.y() != n.ports[0].y() })
}

func (n *cable) paintTrack(c canvas, x int) {
	top, bottom := n.ports[0].y(), n.ports[0].y()
	for _, p := range n.ports {
		top, bottom = min(top, p.y()), max(bottom, p.y())
	}
	c.vertical(x, top, bottom, n)
}

// linkTable says what each link does to packets, per direction where they differ.
func (t *Topology) linkTable() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, l := range t.links {
		forward, backward := l.effect(l.spec.Forward), l.effect(l.spec.Backward)
		separator := " – "
		if forward != backward {
			forward, separator = "→ "+forward, " → "
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.name, strings.Join(l.spec.Ends, separator), l.prefix6, forward)
		if separator == " → " {
			fmt.Fprintf(w, "\t\t\t← %s\n", backward)
		}
	}
	w.Flush()
	return b.String()
}

func (l *link) effect(d *experiment.Direction) string {
	s := d.String()
	if s == "" {
		s = "unlimited"
	}
	if l.mtu() != 1500 {
		s += fmt.Sprintf(", MTU %d", l.mtu())
	}
	return s
}

package report

import (
	"fmt"
	"math"

	"plait.dev/plait/lab/result"
)

const (
	nodeH  = 40.0
	bendPx = 26.0
)

// network draws a topology, from left to right, or from top to bottom for narrow windows.
type network struct {
	of       result.Topology
	at       map[string]place
	vertical bool
	// along is the middle of each column, across how far lanes are apart, width the box of each node.
	along  []float64
	across float64
	width  map[string]float64
	c      *canvas
	origin float64
}

func drawTopology(t result.Topology, vertical bool) *canvas {
	n := &network{of: t, at: layout(t), vertical: vertical, width: map[string]float64{}, c: &canvas{}}
	n.measure()
	for i, link := range t.Links {
		if len(link.Ends) > 2 {
			n.drawLAN(link)
		} else if n.at[link.Ends[0]].column == n.at[link.Ends[1]].column {
			n.drawSide(link)
		} else {
			n.drawLink(link, n.lane(i))
		}
	}
	for _, node := range t.Nodes {
		n.drawNode(node)
	}
	return n.c
}

// measure finds the distances between columns and lanes that leave room for the labels.
func (n *network) measure() {
	columns := 0
	for _, node := range n.of.Nodes {
		n.width[node.Name] = math.Max(64, math.Max(textWidth(node.Name, 13), textWidth(asn(node), 11))+20)
	}
	room := map[int]float64{} // of the labels behind each column
	half := map[int]float64{}
	for name, p := range n.at {
		columns = max(columns, p.column+1)
		half[p.column] = math.Max(half[p.column], n.thickness(name)/2)
	}
	labelAcross := 56.0
	for _, link := range n.of.Links {
		w, h := labelSizeOf(n.label(link))
		if len(link.Ends) > 2 {
			continue
		}
		if n.vertical {
			w, h = h+6, w+24
		} else {
			h += nodeH/2 + 8
		}
		labelAcross = math.Max(labelAcross, h)
		a, b := n.at[link.Ends[0]].column, n.at[link.Ends[1]].column
		room[min(a, b)] = math.Max(room[min(a, b)], w+2*bendPx+10)
	}
	for name := range n.at {
		if n.vertical {
			labelAcross = math.Max(labelAcross, n.width[name]+14)
		}
	}
	n.across = labelAcross
	pos := 6.0
	for column := range columns {
		if column > 0 {
			pos += math.Max(40, room[column-1])
		}
		pos += half[column]
		n.along = append(n.along, pos)
		pos += half[column]
	}
	low, high := n.extent()
	n.origin = 6 - low
	if n.vertical {
		n.c.w, n.c.h = high-low+12, pos+6
	} else {
		n.c.w, n.c.h = pos+6, high-low+12
	}
}

// extent is what boxes and labels take across the columns, from the lane in the middle.
func (n *network) extent() (low, high float64) {
	for _, node := range n.of.Nodes {
		half := nodeH / 2
		if n.vertical {
			half = n.width[node.Name] / 2
		}
		at := n.at[node.Name].lane * n.across
		low, high = math.Min(low, at-half), math.Max(high, at+half)
	}
	for i, link := range n.of.Links {
		w, h := labelSizeOf(n.label(link))
		if len(link.Ends) > 2 {
			from, to := n.span(link)
			if n.vertical {
				to += 8 + w
			} else {
				from -= 17
			}
			low, high = math.Min(low, from), math.Max(high, to)
		} else if at := n.lane(i) * n.across; n.vertical {
			low, high = math.Min(low, at-4), math.Max(high, at+8+w)
		} else {
			low, high = math.Min(low, at-8-h), math.Max(high, at+4)
		}
	}
	return low, high
}

// thickness is how much of the main direction a vertex takes.
func (n *network) thickness(name string) float64 {
	switch {
	case isLAN(name):
		return 6
	case n.vertical:
		return nodeH
	}
	return n.width[name]
}

// lane is where link i runs: with parallel links side by side, else at its end that it does not share with other links of this gap between columns, or that is further out.
func (n *network) lane(i int) float64 {
	link := n.of.Links[i]
	a, b := n.at[link.Ends[0]], n.at[link.Ends[1]]
	twins, mine := 0, 0
	for j, other := range n.of.Links {
		if len(other.Ends) == 2 && (other.Ends[0] == link.Ends[0] && other.Ends[1] == link.Ends[1] || other.Ends[0] == link.Ends[1] && other.Ends[1] == link.Ends[0]) {
			if j == i {
				mine = twins
			}
			twins++
		}
	}
	lane := a.lane
	if shared, other := n.shared(link, 0), n.shared(link, 1); shared && !other || shared == other && math.Abs(b.lane) > math.Abs(a.lane) {
		lane = b.lane
	}
	if d := a.column - b.column; d > 1 || d < -1 {
		if over := n.between(a, b); over {
			lane = n.outermost() + 1
		}
	}
	return lane + float64(mine) - float64(twins-1)/2
}

// shared reports whether another node is linked to the same end of a link over the same gap between columns.
func (n *network) shared(link result.Link, end int) bool {
	node, there := link.Ends[end], link.Ends[1-end]
	for _, other := range neighbours(n.of, node) {
		if other != there && n.at[other].column == n.at[there].column {
			return true
		}
	}
	return false
}

// between reports whether a node stands in the way of a link that skips columns.
func (n *network) between(a, b place) bool {
	for name, p := range n.at {
		if !isLAN(name) && p.column > min(a.column, b.column) && p.column < max(a.column, b.column) && p.lane == a.lane {
			return true
		}
	}
	return false
}

func (n *network) outermost() float64 {
	most := 0.0
	for _, p := range n.at {
		most = math.Max(most, p.lane)
	}
	return most
}

// point turns a place along and across the columns into x and y.
func (n *network) point(along, lane float64) (x, y float64) {
	across := n.origin + lane*n.across
	if n.vertical {
		return across, along
	}
	return along, across
}

func (n *network) drawNode(node result.Node) {
	p := n.at[node.Name]
	x, y := n.point(n.along[p.column], p.lane)
	w := n.width[node.Name]
	class, radius := "host", 4.0
	if node.Kind == "router" {
		class, radius = "router", nodeH/2
	}
	n.c.rect(class, x-w/2, y-nodeH/2, w, nodeH, radius)
	if as := asn(node); as != "" {
		n.c.text("strong mid", x, y-1, node.Name)
		n.c.text("small mid", x, y+13, as)
		return
	}
	n.c.text("strong mid", x, y+4, node.Name)
}

func asn(node result.Node) string {
	if node.ASN == 0 {
		return ""
	}
	return fmt.Sprintf("AS %d", node.ASN)
}

// span is from where to where the bar of a LAN goes across the columns: a little further than its outermost members.
func (n *network) span(link result.Link) (from, to float64) {
	from, to = math.Inf(1), math.Inf(-1)
	for _, end := range link.Ends {
		at := n.at[end].lane * n.across
		from, to = math.Min(from, at-nodeH/2), math.Max(to, at+nodeH/2)
	}
	return from, to
}

// drawLAN draws a bar across the lanes of its members and a short wire to each.
func (n *network) drawLAN(link result.Link) {
	bar := n.at[lanName(link)]
	for _, end := range link.Ends {
		p := n.at[end]
		x1, y1 := n.point(n.along[bar.column], p.lane)
		x2, y2 := n.point(n.along[p.column], p.lane)
		n.c.line("wire", x1, y1, x2, y2)
	}
	from, to := n.span(link)
	x1, y1 := n.point(n.along[bar.column]-2.5, from/n.across)
	x2, y2 := n.point(n.along[bar.column]+2.5, to/n.across)
	n.c.rect("lan", x1, y1, x2-x1, y2-y1, 2)
	if n.vertical {
		n.c.text("strong halo", x2+6, y2+2, link.Name)
	} else {
		n.c.text("strong mid halo", (x1+x2)/2, y1-5, link.Name)
	}
}

// drawLink draws a wire that leaves its lane only beside the boxes, and its label along the straight part.
func (n *network) drawLink(link result.Link, lane float64) {
	a, b := n.at[link.Ends[0]], n.at[link.Ends[1]]
	first, second := link.Ends[0], link.Ends[1]
	if a.column > b.column {
		a, b, first, second = b, a, second, first
	}
	from := n.along[a.column] + n.thickness(first)/2
	to := n.along[b.column] - n.thickness(second)/2
	x0, y0 := n.point(from, a.lane)
	d := "M" + px(x0) + " " + px(y0)
	d += n.bend(from, a.lane, from+bendPx, lane)
	xm, ym := n.point(to-bendPx, lane)
	d += "L" + px(xm) + " " + px(ym)
	d += n.bend(to-bendPx, lane, to, b.lane)
	n.c.path("wire", d)
	x, y := n.point((from+to)/2, lane)
	n.drawLabel(link, x, y)
}

// bend is a smooth step from one lane to another.
func (n *network) bend(along1, lane1, along2, lane2 float64) string {
	mid := (along1 + along2) / 2
	x1, y1 := n.point(mid, lane1)
	x2, y2 := n.point(mid, lane2)
	x3, y3 := n.point(along2, lane2)
	return fmt.Sprintf("C%s %s %s %s %s %s", px(x1), px(y1), px(x2), px(y2), px(x3), px(y3))
}

// drawSide joins two nodes of one column.
func (n *network) drawSide(link result.Link) {
	a, b := n.at[link.Ends[0]], n.at[link.Ends[1]]
	x1, y1 := n.point(n.along[a.column], a.lane)
	x2, y2 := n.point(n.along[b.column], b.lane)
	n.c.line("wire", x1, y1, x2, y2)
	n.drawLabel(link, (x1+x2)/2, (y1+y2)/2)
}

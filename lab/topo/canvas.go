package topo

import "strings"

// Directions in which a line leaves a cell of the canvas.
const (
	up = 1 << iota
	down
	left
	right
)

var lineRunes = map[int]rune{
	left: '─', right: '─', left | right: '─', up: '│', down: '│', up | down: '│',
	down | right: '┌', down | left: '┐', up | right: '└', up | left: '┘',
	up | down | right: '├', up | down | left: '┤', left | right | down: '┬', left | right | up: '┴', up | down | left | right: '┼',
}

// canvas holds text, and lines by the directions they leave a cell.
type canvas map[[2]int]cell

type cell struct {
	text  rune
	lines int
	of    *cable // nil: a box
}

// line adds to a cell. Where two cables cross, the horizontal one passes over the other.
func (c canvas) line(x, y, directions int, of *cable) {
	at := c[[2]int{x, y}]
	if at.of != nil && of != nil && at.of != of {
		if at.lines&(left|right) != 0 {
			return
		}
		at.lines = 0
	}
	at.lines |= directions
	if of != nil {
		at.of = of
	}
	c[[2]int{x, y}] = at
}

func (c canvas) write(x, y int, s string) {
	for i, r := range []rune(s) {
		c[[2]int{x + i, y}] = cell{text: r}
	}
}

func (c canvas) horizontal(from, to, y int, of *cable) {
	for x := from; x < to; x++ {
		c.line(x, y, right, of)
		c.line(x+1, y, left, of)
	}
}

func (c canvas) vertical(x, from, to int, of *cable) {
	for y := from; y < to; y++ {
		c.line(x, y, down, of)
		c.line(x, y+1, up, of)
	}
}

func (c canvas) String() string {
	var width, height int
	for at := range c {
		width, height = max(width, at[0]+1), max(height, at[1]+1)
	}
	var b strings.Builder
	for y := range height {
		row := make([]rune, width)
		for x := range row {
			row[x] = ' '
			if at := c[[2]int{x, y}]; at.text != 0 {
				row[x] = at.text
			} else if at.lines != 0 {
				row[x] = lineRunes[at.lines]
			}
		}
		b.WriteString(strings.TrimRight(string(row), " ") + "\n")
	}
	return b.String()
}

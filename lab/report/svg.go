package report

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// canvas collects the elements of one SVG drawing. Looks are classes of plot.css; the geometry is in CSS pixels.
type canvas struct {
	w, h float64
	body strings.Builder
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.body, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, px(x1), px(y1), px(x2), px(y2))
}

func (c *canvas) rect(class string, x, y, w, h, radius float64) {
	fmt.Fprintf(&c.body, `<rect class="%s" x="%s" y="%s" width="%s" height="%s" rx="%s"/>`, class, px(x), px(y), px(w), px(h), px(radius))
}

func (c *canvas) circle(class string, x, y, r float64) {
	fmt.Fprintf(&c.body, `<circle class="%s" cx="%s" cy="%s" r="%s"/>`, class, px(x), px(y), px(r))
}

func (c *canvas) path(class, d string) {
	fmt.Fprintf(&c.body, `<path class="%s" d="%s"/>`, class, d)
}

// text writes s with its baseline at y. The class holds the anchor: start (none), mid or end.
func (c *canvas) text(class string, x, y float64, s string) {
	fmt.Fprintf(&c.body, `<text class="%s" x="%s" y="%s">%s</text>`, class, px(x), px(y), html.EscapeString(s))
}

// open and close put a group around what is drawn between them; its title is what a pointer shows.
func (c *canvas) open(class, title string) {
	fmt.Fprintf(&c.body, `<g class="%s"><title>%s</title>`, class, html.EscapeString(title))
}

func (c *canvas) close() { c.body.WriteString("</g>") }

// inline returns the drawing for the page, which has the style.
func (c *canvas) inline(class, title string) string {
	return fmt.Sprintf(`<svg class="plot %s" viewBox="0 0 %s %s" style="max-width:%spx" role="img" aria-label="%s">%s</svg>`,
		class, px(c.w), px(c.h), px(c.w*1.1), html.EscapeString(title), &c.body)
}

// nested puts a drawing into another one.
func (c *canvas) nested(part *canvas, x, y float64) {
	fmt.Fprintf(&c.body, `<svg x="%s" y="%s" width="%s" height="%s">%s</svg>`, px(x), px(y), px(part.w), px(part.h), &part.body)
}

// file returns the drawing as an SVG file with its style inside, on white.
func (c *canvas) file(title string) []byte {
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" class="plot" width="%[1]s" height="%[2]s" viewBox="0 0 %[1]s %[2]s">
<title>%[3]s</title>
<style>%[4]s</style>
<rect width="100%%" height="100%%" fill="#fff"/>
%[5]s
</svg>
`, px(c.w), px(c.h), html.EscapeString(title), fileStyle(), &c.body)
}

// px writes a length to a tenth of a pixel.
func px(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', -1, 64)
}

// textWidth estimates how wide s is at a font size, in pixels: about right for wide sans-serif fonts (DejaVu Sans)
// and some 10 % too much for others.
func textWidth(s string, size float64) float64 {
	w := 0.0
	for _, r := range s {
		switch {
		case strings.ContainsRune("ijl.,:;'|!()[]I ", r):
			w += 0.34
		case strings.ContainsRune("tfr-/", r):
			w += 0.40
		case strings.ContainsRune("mwMW%@≥≤", r):
			w += 0.90
		case r >= 'A' && r <= 'Z':
			w += 0.70
		default:
			w += 0.62
		}
	}
	return w * size
}

// shorten cuts s to a width.
func shorten(s string, size, width float64) string {
	if textWidth(s, size) <= width {
		return s
	}
	runes := []rune(s)
	for len(runes) > 1 && textWidth(string(runes)+"…", size) > width {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimSpace(string(runes)) + "…"
}

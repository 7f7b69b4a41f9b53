package report

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed plot.css
var plotStyle string

// palette holds the colours by name, for light and for dark paper. c0 to c7 can be told apart with every common form of
// colour blindness (after Okabe and Ito, Color Universal Design, 2008), darkened or lightened so that text in them is
// readable.
var palette = []struct{ name, light, dark string }{
	{"paper", "#ffffff", "#15181c"},
	{"ink", "#1b1f24", "#e8eaed"},
	{"muted", "#5c6570", "#9aa4b0"},
	{"rule", "#dfe3e8", "#30363d"},
	{"shade", "#f4f6f8", "#1d2126"},
	{"good", "#17803d", "#4cc38a"},
	{"bad", "#c62a2f", "#ff7b72"},
	{"heat", "#0b5394", "#6cb4ee"},
	{"c0", "#0067a8", "#5aaef0"},
	{"c1", "#cc5500", "#ff8f4d"},
	{"c2", "#00855f", "#35c79a"},
	{"c3", "#a0408f", "#dd8fce"},
	{"c4", "#9a7000", "#e5b83c"},
	{"c5", "#3f8fb0", "#9bdcf5"},
	{"c6", "#7a2048", "#f08aab"},
	{"c7", "#5f6b78", "#a9b4c0"},
}

const hues = 8

// hue returns the classes of the n-th colour; beyond the palette lines are dashed.
func hue(n int) string {
	if n >= hues {
		return fmt.Sprintf("c%d dash", n%hues)
	}
	return fmt.Sprintf("c%d", n)
}

// pageStyle declares the palette for the page.
func pageStyle() string {
	var light, dark strings.Builder
	for _, colour := range palette {
		fmt.Fprintf(&light, "--%s:%s;", colour.name, colour.light)
		fmt.Fprintf(&dark, "--%s:%s;", colour.name, colour.dark)
	}
	return fmt.Sprintf(":root{color-scheme:light dark;%s}\n@media screen and (prefers-color-scheme:dark){:root{%s}}\n%s", &light, &dark, plotStyle)
}

// fileStyle is the style of a single SVG file: the light colours put in, since many programs do not know CSS variables.
func fileStyle() string {
	style := plotStyle
	for _, colour := range palette {
		style = strings.ReplaceAll(style, "var(--"+colour.name+")", colour.light)
	}
	return style
}

// colours gives names their colours, the same in the whole report, in order of appearance.
type colours struct {
	of map[string]int
}

func (c *colours) get(name string) int {
	if c.of == nil {
		c.of = map[string]int{}
	}
	n, ok := c.of[name]
	if !ok {
		n = len(c.of)
		c.of[name] = n
	}
	return n
}

// Package printable makes what another host says fit for a terminal and a log.
package printable

import (
	"strings"
	"unicode"
)

// Text is text without what would command a terminal or begin another line.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

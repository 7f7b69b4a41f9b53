package stripe

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseLinks reads links and their policies as the command line has them, for [Config.Links]: names with commas between, each
// followed by what limits it, as in "wlan0,wwan0=0.5,eth0:cap=2GB,usb0:backup,ppp0:priority=1". "=0.5" is Policy.Share.
func ParseLinks(text string) (map[string]Policy, error) {
	links := map[string]Policy{}
	whole := 0 // links without a share
	for _, one := range strings.Split(text, ",") {
		words := strings.Split(strings.TrimSpace(one), ":")
		name, share, shared := strings.Cut(words[0], "=")
		if _, twice := links[name]; name == "" || twice {
			return nil, fmt.Errorf("links %q: %q: give each link once, by the name of its interface, for example wlan0,wwan0=0.5,eth0:cap=2GB", text, one)
		}
		var p Policy
		var err error
		if shared {
			if p.Share, err = strconv.ParseFloat(share, 64); err != nil || !(p.Share > 0 && p.Share <= 1) {
				return nil, fmt.Errorf("link %s: share %q: use a number above 0, up to 1", name, share)
			}
		}
		given := map[string]bool{}
		for _, word := range words[1:] {
			if err := p.set(word); err != nil {
				return nil, fmt.Errorf("link %s: %w", name, err)
			}
			key, _, _ := strings.Cut(word, "=")
			if given[key] {
				return nil, fmt.Errorf("link %s: %s is given twice: once is enough", name, key)
			}
			given[key] = true
		}
		if !shared {
			whole++
		}
		links[name] = p
	}
	if whole == 0 && len(links) > 1 {
		return nil, fmt.Errorf("links %q: each has a share, which limits a link only beside one without: leave it out for the link that is to take the rest, for example wlan0,wwan0=0.5", text)
	}
	return links, nil
}

// set takes one word of a policy.
func (p *Policy) set(word string) (err error) {
	key, value, _ := strings.Cut(word, "=")
	switch {
	case key == "cap":
		p.CapBytes, err = parseBytes(value)
	case key == "priority":
		if p.Priority, err = strconv.Atoi(value); err != nil {
			err = fmt.Errorf("priority %q: use a number, 0 is first", value)
		}
	case word == "backup":
		p.Backup = true
	default:
		err = fmt.Errorf("%q: use cap=2GB, priority=1 or backup", word)
	}
	if err != nil {
		return err
	}
	return p.Validate()
}

// parseBytes reads a size: a number and kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024).
func parseBytes(text string) (uint64, error) {
	number := strings.TrimRight(text, "BKMGTikmgt")
	factor := map[string]float64{"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[text[len(number):]]
	n, err := strconv.ParseFloat(number, 64)
	if bytes := n * factor; err == nil && bytes >= 1 && bytes < math.MaxInt64 {
		return uint64(bytes), nil
	}
	return 0, fmt.Errorf("size %q: use a number above 0 and a unit, for example 500MB or 2GB", text)
}

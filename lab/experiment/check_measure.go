package experiment

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func (c *checker) checkMeasure() {
	for i, name := range c.spec.Measure.Routes {
		c.isNode(fmt.Sprintf("measure.routes.%d", i), name)
	}
	c.checkFollowed()
	files := map[string]string{}
	for i, capture := range c.spec.Measure.Pcap {
		path := fmt.Sprintf("measure.pcap.%d", i)
		file := strings.ReplaceAll(capture, "/", "-") // as package measure names it
		if other, twice := files[file]; twice {
			c.add(path, "%s would be written to the same file as %s", capture, other)
		}
		files[file] = capture
		node, link, ok := strings.Cut(capture, "/")
		if !ok {
			c.add(path, "%s is not of the form node/link", capture)
		} else if c.isNode(path, node) {
			c.isEnd(path, link, node)
		}
	}
	c.checkJain()
}

// checkJain lets applications be named that this cell leaves out (when), see presentJain.
func (c *checker) checkJain() {
	names := c.spec.Measure.Jain
	for i, name := range names {
		path := fmt.Sprintf("measure.jain.%d", i)
		owner, isFlow := ownerOf(name)
		app := c.spec.Apps[owner]
		switch {
		case slices.Contains(names[:i], name):
			c.add(path, "%s is listed twice", name)
		case isFlow && !c.spec.Measure.Sockets:
			c.add(path, "connections such as %s are followed with measure.sockets only", name)
		case c.known(path, "application", owner, c.declared) && app != nil && !app.hasGoodput() && !app.countedGoodput(c.spec.Measure) && !isFlow:
			c.add(path, "%s has no goodput: the lab does not count what a %s receives%s", name, app.Type, goodputOf[app.Type])
		}
	}
	if len(names) == 1 && !strings.HasSuffix(names[0], "..") {
		c.add("measure.jain", "fairness needs two applications")
	}
	if len(names) > 0 && !c.spec.Measure.hasSeconds() {
		c.add("measure.every_ms", "jain compares seconds, which intervals of %d ms do not make up; take a divisor of 1000", c.spec.Measure.EveryMs)
	}
}

// hasSeconds says that so many intervals of the series make up a second.
func (m Measure) hasSeconds() bool { return 1000%m.EveryMs == 0 }

// ownerOf is the application of connection or subflow application/k, or of the name of an application itself.
func ownerOf(name string) (app string, isFlow bool) {
	if !flowName.MatchString(name) {
		return name, false
	}
	app, _, _ = strings.Cut(name, "/")
	return app, true
}

// flowName is connection or subflow k of an application, or with two dots behind it that one and all after it.
var flowName = regexp.MustCompile(`^[^/]+/[1-9][0-9]*(\.\.)?$`)

// goodputOf is what to do about an application's goodput.
var goodputOf = map[string]string{"command": " without measure.sockets"}

// presentJain leaves fairness to the applications that are in the cell; one alone has none.
func presentJain(spec *Spec) {
	spec.Measure.Jain = slices.DeleteFunc(spec.Measure.Jain, func(name string) bool {
		app, _ := ownerOf(name)
		return spec.Apps[app] == nil
	})
	if names := spec.Measure.Jain; len(names) == 0 || len(names) == 1 && !strings.HasSuffix(names[0], "..") {
		spec.Measure.Jain = nil
	}
}

// checkFollowed reports events from which measure.routes cannot tell what to follow: it needs one prefix.
func (c *checker) checkFollowed() {
	first := c.spec.Measure.Prefix
	if first != "" {
		if _, err := netip.ParsePrefix(c.prefix6(first)); err != nil {
			c.add("measure.prefix", "%s is neither a link nor a prefix", first)
		}
	}
	if len(c.spec.Measure.Routes) == 0 {
		return
	}
	for i, event := range c.spec.Timeline {
		for _, change := range []struct{ key, what string }{{"announce", event.Announce}, {"withdraw", event.Withdraw}} {
			switch {
			case change.what == "":
			case first == "":
				first = change.what
			case c.prefix6(change.what) != c.prefix6(first):
				c.add(join(join("timeline", strconv.Itoa(i)), change.key),
					"measure.routes can follow one prefix only, and there are %s and %s; make an experiment of each", first, change.what)
			}
		}
	}
	if first == "" {
		c.add("measure.routes", "no event of the timeline announces or withdraws the prefix whose routes are to be followed, at least in one cell; add one, name it in measure.prefix, or leave routes out")
	}
}

// prefix6 is what is announced: a link's prefix or one that is given as such.
func (c *checker) prefix6(what string) string {
	link := c.spec.Links[what]
	switch {
	case link == nil:
	case link.Prefix6 != "":
		what = link.Prefix6
	default:
		what = fmt.Sprintf("2001:db8:%d::/64", link.Index)
	}
	if p, err := netip.ParsePrefix(what); err == nil {
		return p.String()
	}
	return what
}

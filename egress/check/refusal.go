package check

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// refusal is why a router does not pass a packet on, as far as ICMP tells.
type refusal int

const (
	noRoute    refusal = iota
	noAnswer           // of the next hop, or of the destination, on the router's link
	noWay              // either of these: IPv4 does not tell them apart
	prohibited         // by a firewall, or a rule
	badSource          // the source address is not allowed there (BCP 38)
	rejected           // as by a port without a listener: a firewall, or a host that has the address for its own and does not know what to do with the packet
)

// refusalOf reads the code of a destination unreachable message: RFC 4443 section 3.1, RFC 792 and RFC 1812 section 5.2.7.1.
func refusalOf(code int, is4 bool) refusal {
	of := map[int]refusal{1: prohibited, 3: noAnswer, 4: rejected, 5: badSource, 6: prohibited}
	if is4 {
		of = map[int]refusal{1: noWay, 2: rejected, 3: rejected, 9: prohibited, 10: prohibited, 13: prohibited}
	}
	return of[code]
}

// to says what the router does with packets to a destination.
func (r refusal) to(destination string) string {
	return fmt.Sprintf([...]string{"has no route to %s", "gets no answer on its link from %s, or from the next hop there", "cannot reach %s", "prohibits packets to %s", "lets no packets from this address pass to %s",
		"rejects packets to %s, as firewalls do"}[r], destination)
}

const (
	doBehind = "on its border router see that the exit's table leads to the peer (ip -6 route get TARGET vrf of the exit), and whether the peer drops packets from this address (BCP 38)"
	doPeer   = "on that router see that the exit's peer is up and answers (ip neigh; in the exit's VRF), and that the exit's table leads to the peer's address"
	doFilter = "see the firewall of that router, and what sources it takes there (BCP 38): packets from this address, and ICMP, must pass"
	doSID    = "see whether every router between this host and the border router knows the locator: the border router must announce it in the IGP, or in the default table"
	doRouter = "see that the border router is up, and that the way to the SID leads to an address that it has"
	doSRv6   = "on that router see the firewall: IPv6 packets with a routing header (next header 43) from this host's own address to the locators must pass, and ICMPv6 back"
	doEnd    = doSRv6 + "; if it is the border router, the SID may be an ordinary address there: ip -6 route show SID must say seg6local End.DT6, End.DT4 or End.DT46"
	doLoop   = "see ip -6 route get SID on that router and the next one: each must lead nearer to the border router"
	doHost   = "see this host's own firewall (nft list ruleset, iptables-save, ip6tables-save): ICMP echo requests, and IPv6 packets with a routing header (next header 43) from this host's own address, must leave"
)

// inside is what to do about packets without encapsulation that are refused; otherwise is what to do where the router has no route.
func (r refusal) inside(otherwise string) string {
	switch r {
	case noAnswer:
		return doPeer
	case prohibited, badSource, rejected:
		return doFilter
	}
	return otherwise
}

// before is what to do about encapsulated packets that are refused.
func (r refusal) before() string {
	switch r {
	case noAnswer:
		return doRouter
	case prohibited, badSource:
		return doSRv6
	case rejected:
		return doEnd
	}
	return doSID
}

// kept finds a router that keeps packets to all destinations for itself though others have passed them on, which firewalls of their own would not do together: that it takes none from this address is certain then if
// it says so.
func (t trace) kept(targets []netip.Addr) (answer, Outcome) {
	by := map[netip.Addr]map[netip.Addr]bool{}
	last, outcome := answer{}, OK
	for _, a := range t.inside() {
		if a.kind == reply {
			return a, OK
		}
		if a.kind != unreachable || a.refusal != prohibited && a.refusal != rejected && a.refusal != badSource {
			continue
		}
		if by[a.from] == nil {
			by[a.from] = map[netip.Addr]bool{}
		}
		by[a.from][a.to] = true
		switch all := len(by[a.from]) == len(targets); {
		case all && a.refusal == badSource:
			last, outcome = a, Failed
		case all && len(targets) > 1 && outcome == OK:
			last, outcome = a, Unknown
		}
	}
	return last, outcome
}

// unsent is what to do where the kernel does not let a packet leave.
func unsent(err error, otherwise string) string {
	if errors.Is(err, syscall.EPERM) {
		return doHost
	}
	return otherwise
}

// loops finds a router whom several packets of one destination, with different hop limits, have brought to the end of theirs: the hop limit of a packet is in the header around it, too, and a router on the way
// is at the end of one alone.
func (t trace) loops() (router netip.Addr, is bool) {
	at := map[[2]netip.Addr]int{}
	for _, a := range t {
		if !a.outer || a.kind != expired || !a.to.IsValid() {
			continue
		}
		of := [2]netip.Addr{a.from, a.to}
		if before, known := at[of]; known && before != a.hopLimit {
			return a.from, true
		}
		at[of] = a.hopLimit
	}
	return router, false
}

// before tells what routers on the way to the SID say about the encapsulated packets, and what to do about it; hop limits they exceed are ours.
func (t trace) before() (text, do string) {
	for _, a := range t {
		switch {
		case a.outer && a.kind == tooBig:
			return fmt.Sprintf("; %v on the way to the SID says that encapsulated packets have at most %d bytes", a.from, a.mtu), doSize
		case a.outer && a.kind == unreachable:
			return fmt.Sprintf("; %v on the way to the SID says that it %s", a.from, a.refusal.to(a.about.String())), a.refusal.before()
		}
	}
	if router, is := t.loops(); is {
		return fmt.Sprintf("; on the way to the SID they go round in a loop, in which %v is", router), doLoop
	}
	return "", doDrop
}

// Settings is where the kernel has those of IPv4 for each interface.
const Settings = "/proc/sys/net/ipv4/conf"

// ReversePathFilter is the rp_filter in force on an interface, "0", "1" or "2", by the kernel's settings in a directory; "": it cannot be read.
func ReversePathFilter(settings, link string) string {
	filter := func(of string) string {
		value, _ := os.ReadFile(filepath.Join(settings, of, "rp_filter"))
		return strings.TrimSpace(string(value))
	}
	return max(filter("all"), filter(link)) // the higher one counts
}

// Unfiltered is what to give sysctl so that no filter is in force on an interface, in whose name a dot, as of a VLAN, is to be written as a slash.
func Unfiltered(link string) string {
	return fmt.Sprintf("net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.%s.rp_filter=0", strings.ReplaceAll(link, ".", "/"))
}

// strict says which of some interfaces drop IPv4 packets to an address whose own packets leave by another one (RFC 3704 section 2.2).
func strict(settings string, links []string) (out []string) {
	for _, l := range links {
		if ReversePathFilter(settings, l) == "1" { // 2 is not strict
			out = append(out, l)
		}
	}
	return out
}

// dropped names interfaces that may keep answers to IPv4 requests from this host, which nobody else will tell.
func dropped(leaves string, r *Result) {
	var others []string
	links, _ := net.Interfaces()
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 && l.Flags&net.FlagLoopback == 0 && l.Name != leaves {
			others = append(others, l.Name)
		}
	}
	if drop := strict(Settings, others); len(drop) > 0 {
		names := strings.Join(drop, ", ")
		r.Found += fmt.Sprintf("; %s has rp_filter 1, so answers that come in there and not by %s are dropped", names, leaves)
		r.Do = fmt.Sprintf("see whether routers deliver the exit's address by %s: let them use %s, or sysctl -w %s; else: %s", names, leaves, Unfiltered(drop[0]), r.Do)
	}
}

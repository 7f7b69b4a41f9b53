package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// asTrans stands in the field of 2 bytes for an AS number that needs 4 (RFC 6793).
const asTrans = 23456

// agreement is what the OPEN messages of both sides make of a session.
type agreement struct {
	reflector netip.Addr // its router ID
	holdTime  time.Duration
	agreed    [families]bool
	addPath   [families]bool
	extended  bool                // messages of up to 65535 bytes
	own       map[netip.Addr]bool // addresses of this host, when the session came up

	restart       bool // the reflector speaks graceful restart
	restartTime   time.Duration
	notifications bool           // routes stay after a NOTIFICATION too (RFC 8538)
	keeps         [families]bool // routes of these families stay while the reflector restarts
	forwarding    [families]bool // it kept its forwarding state through its last restart

	options wire.MarshallingOption
}

// openMessage says who this host is and what it can: receive, and nothing else.
func openMessage(c *Config, r *Reflector) (*wire.BGPMessage, error) {
	capabilities := make([]wire.ParameterCapabilityInterface, 0, families+5)
	paths := make([]*wire.CapAddPathTuple, 0, families)
	for _, f := range wireFamilies {
		capabilities = append(capabilities, wire.NewCapMultiProtocol(f))
		paths = append(paths, wire.NewCapAddPathTuple(f, wire.BGP_ADD_PATH_RECEIVE))
	}
	capabilities = append(capabilities,
		wire.NewCapFourOctetASNumber(c.AS),
		wire.NewCapExtendedNexthop([]*wire.CapExtendedNexthopTuple{
			wire.NewCapExtendedNexthopTuple(wire.RF_IPv4_UC, wire.AFI_IP6),
			wire.NewCapExtendedNexthopTuple(wire.RF_IPv4_VPN, wire.AFI_IP6),
		}),
		wire.NewCapAddPath(paths),
		wire.NewCapExtendedMessage(),
		// No family in it: this host forwards for nobody and has nothing to keep, it helps (RFC 4724 section 3).
		wire.NewCapGracefulRestart(false, true, 0, nil))
	as := uint16(asTrans)
	if c.AS <= 65535 {
		as = uint16(c.AS)
	}
	return wire.NewBGPOpenMessage(as, uint16(r.HoldTime/time.Second), c.RouterID,
		[]wire.OptionParameterInterface{wire.NewOptionParameterCapability(capabilities)})
}

// agree draws the conclusions from the reflector's OPEN. The error tells the reflector by its codes and the operator in words.
func agree(open *wire.BGPOpen, c *Config, r *Reflector) (*agreement, error) {
	refuse := func(sub uint8, format string, args ...any) (*agreement, error) {
		return nil, &protocolError{wire.BGP_ERROR_OPEN_MESSAGE_ERROR, sub, nil, fmt.Sprintf(format, args...)}
	}
	a := &agreement{reflector: open.ID, holdTime: min(r.HoldTime, time.Duration(open.HoldTime)*time.Second)}
	as, long := uint32(open.MyAS), false
	for _, parameter := range open.OptParams {
		p, ok := parameter.(*wire.OptionParameterCapability)
		if !ok {
			continue
		}
		for _, capability := range p.Capability {
			if four, ok := capability.(*wire.CapFourOctetASNumber); ok {
				as, long = four.CapValue, true
			}
			a.take(capability)
		}
	}
	switch {
	case open.Version != 4:
		return refuse(wire.BGP_ERROR_SUB_UNSUPPORTED_VERSION_NUMBER, "the reflector speaks BGP version %d, not 4", open.Version)
	case as != c.AS:
		return refuse(wire.BGP_ERROR_SUB_BAD_PEER_AS, "the reflector is in AS %d, this host is configured for AS %d: a route reflector is in the same AS; correct one of them", as, c.AS)
	case open.ID.IsUnspecified() || open.ID == c.RouterID:
		return refuse(wire.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER, "the reflector's router ID is %s, this host's %s: they must be two; give this host another", open.ID, c.RouterID)
	case open.HoldTime == 1 || open.HoldTime == 2:
		return refuse(wire.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME, "the reflector wants a hold time of %d s: at least 3 are needed", open.HoldTime)
	case !long:
		return refuse(wire.BGP_ERROR_SUB_UNSUPPORTED_CAPABILITY, "the reflector has no 4-octet AS numbers (RFC 6793): it needs a newer BGP")
	case a.agreed == [families]bool{}:
		return refuse(wire.BGP_ERROR_SUB_UNSUPPORTED_CAPABILITY, "the reflector offers none of %s: activate one for this host", strings.Join(familyNames[:], ", "))
	}
	a.options = wire.MarshallingOption{ExtendedMessage: a.extended, AddPath: map[wire.Family]wire.BGPAddPathMode{}}
	for f := range families {
		if a.addPath[f] = a.addPath[f] && a.agreed[f]; a.addPath[f] {
			a.options.AddPath[wireFamilies[f]] = wire.BGP_ADD_PATH_RECEIVE
		}
		a.keeps[f] = a.keeps[f] && a.agreed[f]
	}
	return a, nil
}

// take notes what a capability of the reflector means.
func (a *agreement) take(capability wire.ParameterCapabilityInterface) {
	switch capability := capability.(type) {
	case *wire.CapMultiProtocol:
		if f := familyOf(capability.CapValue); f >= 0 {
			a.agreed[f] = true
		}
	case *wire.CapAddPath:
		for _, t := range capability.Tuples {
			if f := familyOf(t.Family); f >= 0 && t.Mode&wire.BGP_ADD_PATH_SEND != 0 {
				a.addPath[f] = true
			}
		}
	case *wire.CapExtendedMessage:
		a.extended = true
	case *wire.CapGracefulRestart:
		// The last one counts, and all of it (RFC 4724 section 3).
		a.restart, a.keeps, a.forwarding = true, [families]bool{}, [families]bool{}
		a.restartTime = time.Duration(capability.Time) * time.Second
		a.notifications = capability.Flags&0x04 != 0
		for _, t := range capability.Tuples {
			if f := familyOf(wire.NewFamily(t.AFI, t.SAFI)); f >= 0 {
				a.keeps[f], a.forwarding[f] = true, t.Flags&0x80 != 0
			}
		}
	}
}

// words lists what was agreed on, for an operator.
func (a *agreement) words() []string {
	var out []string
	list := func(name string, have [families]bool) {
		var names []string
		for f, yes := range have {
			if yes {
				names = append(names, familyNames[f])
			}
		}
		if len(names) > 0 {
			out = append(out, name+": "+strings.Join(names, ", "))
		}
	}
	list("families", a.agreed)
	list("ADD-PATH receive", a.addPath)
	if a.restart {
		list(fmt.Sprintf("graceful restart, %s", a.restartTime), a.keeps)
		if a.notifications {
			out = append(out, "graceful restart after NOTIFICATION")
		}
	}
	if a.extended {
		out = append(out, "extended messages")
	}
	return slices.Clip(append(out, "4-octet AS"))
}

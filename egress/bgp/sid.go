package bgp

import (
	"net/netip"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Labels of 20 bits hold what is transposed out of a SID (RFC 9252 section 5.1).
const (
	labelBits    = 20
	implicitNull = 3 // RFC 3032: here, that the label holds nothing
)

// Behaviours with a flavour that gobgp has no name for: NEXT-CSID (RFC 9800).
const (
	endDT6NextCSID  = 62
	endDT4NextCSID  = 63
	endDT46NextCSID = 64
)

// opaque is the behaviour of a SID whose router keeps to itself which it is (IANA's registry SRv6 Endpoint Behaviors). FRR 8.4 sends it for all.
const opaque = 0xffff

// serviceSID returns the SID Information of the first SRv6 L3 Service TLV; further ones do not count (RFC 9252 section 2).
func serviceSID(attr *wire.PathAttributePrefixSID) *wire.SRv6InformationSubTLV {
	if attr == nil {
		return nil
	}
	for _, tlv := range attr.TLVs {
		service, ok := tlv.(*wire.SRv6ServiceTLV)
		if !ok || service.Type != wire.TLVTypeSRv6L3Service {
			continue
		}
		for _, sub := range service.SubTLVs {
			if info, ok := sub.(*wire.SRv6InformationSubTLV); ok {
				return info
			}
		}
		return nil
	}
	return nil
}

// sidOf returns the complete SID of a VPN route with this label.
func sidOf(info *wire.SRv6InformationSubTLV, family Family, label uint32) (netip.Addr, refusal) {
	if info == nil || len(info.SID) != 16 {
		return netip.Addr{}, noSID
	}
	switch int(info.EndpointBehavior) {
	case int(wire.END_DT46), endDT46NextCSID, opaque:
	case int(wire.END_DT4), endDT4NextCSID:
		if family != VPNv4 {
			return netip.Addr{}, otherBehaviorFamily
		}
	case int(wire.END_DT6), endDT6NextCSID:
		if family != VPNv6 {
			return netip.Addr{}, otherBehaviorFamily
		}
	default:
		return netip.Addr{}, unknownBehavior
	}
	sid := [16]byte(info.SID)
	for _, sub := range info.SubSubTLVs {
		if structure, ok := sub.(*wire.SRv6SIDStructureSubSubTLV); ok {
			if refused := transpose(&sid, structure, label); refused != accepted {
				return netip.Addr{}, refused
			}
			break
		}
	}
	addr := netip.AddrFrom16(sid)
	if addr.IsUnspecified() || addr.IsMulticast() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.Is4In6() {
		return netip.Addr{}, badSID
	}
	return addr, accepted
}

// transpose puts back what the sender has moved from the SID into the label: its first TL bits belong at bit TO of the SID
// (RFC 9252 sections 3.2.1, 4 and 5.1; erratum 7817 for the sum).
func transpose(sid *[16]byte, s *wire.SRv6SIDStructureSubSubTLV, label uint32) refusal {
	length, offset := int(s.TranspositionLength), int(s.TranspositionOffset)
	sum := int(s.LocatorBlockLength) + int(s.LocatorNodeLength) + int(s.FunctionLength) + int(s.ArgumentLength)
	if sum > 128 || length > labelBits || length > int(s.FunctionLength) || length > 0 && offset+length > sum {
		return badStructure
	}
	if length == 0 {
		return accepted
	}
	value := label >> (labelBits - length)
	if label == implicitNull || value == 0 {
		return badLabel
	}
	for i := range length {
		bit := offset + i
		mask := byte(0x80) >> (bit % 8)
		sid[bit/8] &^= mask
		if value>>(length-1-i)&1 == 1 {
			sid[bit/8] |= mask
		}
	}
	return accepted
}

package bgp

import (
	"math/big"
	"math/rand/v2"
	"net/netip"
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

func TestSID(t *testing.T) {
	structure := wire.NewSRv6SIDStructureSubSubTLV
	for name, c := range map[string]struct {
		info   *wire.SRv6InformationSubTLV
		family Family
		label  uint32
		want   string
		refuse refusal
	}{
		"FRR 10.3: 16 bits transposed":             {sidInfo("2001:db8:f1::", wire.END_DT6, structure(32, 16, 16, 0, 16, 48)), VPNv6, 16, "2001:db8:f1:1::", 0},
		"20 bits transposed":                       {sidInfo("2001:db8:f1::", wire.END_DT46, structure(40, 24, 20, 0, 20, 64)), VPNv4, 0xabcde, "2001:db8:f1:0:abcd:e000::", 0},
		"the last bits of the function":            {sidInfo("2001:db8:f1:ab00::", wire.END_DT4, structure(32, 16, 16, 0, 8, 56)), VPNv4, 0xcd000, "2001:db8:f1:abcd::", 0},
		"bits in place of the transposed ones":     {sidInfo("2001:db8:f1:ffff::", wire.END_DT6, structure(32, 16, 16, 0, 16, 48)), VPNv6, 16, "2001:db8:f1:1::", 0},
		"nothing transposed":                       {sidInfo("2001:db8:f1:1::", wire.END_DT6, structure(32, 16, 16, 0, 0, 0)), VPNv6, implicitNull, "2001:db8:f1:1::", 0},
		"no structure":                             {sidInfo("2001:db8:f1:1::", wire.END_DT6), VPNv6, 16, "2001:db8:f1:1::", 0},
		"NEXT-CSID":                                {sidInfo("2001:db8:f1:1::", endDT46NextCSID), VPNv6, implicitNull, "2001:db8:f1:1::", 0},
		"no SID":                                   {nil, VPNv6, 16, "", noSID},
		"zero":                                     {sidInfo("::", wire.END_DT6), VPNv6, implicitNull, "", badSID},
		"multicast":                                {sidInfo("ff02::1", wire.END_DT6), VPNv6, implicitNull, "", badSID},
		"IPv4 inside":                              {sidInfo("::ffff:192.0.2.1", wire.END_DT6), VPNv6, implicitNull, "", badSID},
		"End":                                      {sidInfo("2001:db8:f1::", wire.END), VPNv6, implicitNull, "", unknownBehavior},
		"opaque":                                   {sidInfo("2001:db8:f1:1::", 0xffff), VPNv4, implicitNull, "2001:db8:f1:1::", 0},
		"not allocated":                            {sidInfo("2001:db8:f1::", 0x7fff), VPNv6, implicitNull, "", unknownBehavior},
		"End.DT4 for IPv6":                         {sidInfo("2001:db8:f1:1::", wire.END_DT4), VPNv6, implicitNull, "", otherBehaviorFamily},
		"End.DT6 for IPv4":                         {sidInfo("2001:db8:f1:1::", wire.END_DT6), VPNv4, implicitNull, "", otherBehaviorFamily},
		"more than 128 bits":                       {sidInfo("2001:db8:f1::", wire.END_DT6, structure(64, 32, 32, 1, 16, 96)), VPNv6, 16, "", badStructure},
		"255 bits each":                            {sidInfo("2001:db8:f1::", wire.END_DT6, structure(255, 255, 255, 255, 255, 255)), VPNv6, 16, "", badStructure},
		"more bits than a label has":               {sidInfo("2001:db8:f1::", wire.END_DT6, structure(32, 16, 24, 0, 21, 48)), VPNv6, 16, "", badStructure},
		"more bits than the function has":          {sidInfo("2001:db8:f1::", wire.END_DT6, structure(32, 16, 8, 16, 16, 48)), VPNv6, 16, "", badStructure},
		"bits behind the structure":                {sidInfo("2001:db8:f1::", wire.END_DT6, structure(32, 16, 16, 0, 16, 49)), VPNv6, 16, "", badStructure},
		"bits behind the SID":                      {sidInfo("2001:db8:f1::", wire.END_DT6, structure(32, 16, 16, 0, 16, 255)), VPNv6, 16, "", badStructure},
		"transposed, but implicit null":            {sidInfo("2001:db8:f1::", wire.END_DT6, structure(32, 16, 20, 0, 20, 48)), VPNv6, implicitNull, "", badLabel},
		"transposed, but zero":                     {sidInfo("2001:db8:f1::", wire.END_DT6, structure(32, 16, 16, 0, 16, 48)), VPNv6, 15, "", badLabel},
		"transposed, and the label of withdrawals": {sidInfo("2001:db8:f1::", wire.END_DT6, structure(32, 16, 16, 0, 16, 48)), VPNv6, 0x80000, "2001:db8:f1:8000::", 0},
	} {
		got, refused := sidOf(c.info, c.family, c.label)
		var want netip.Addr
		if c.want != "" {
			want = netip.MustParseAddr(c.want)
		}
		if got != want || refused != c.refuse {
			t.Errorf("%s: got %s, refused %q; want %s, refused %q", name, got, refused, want, c.refuse)
		}
	}
}

// The same by arithmetic on a number of 128 bits.
func TestTransposeAgainstArithmetic(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		block, function := r.IntN(64), r.IntN(64)
		length := r.IntN(min(function, labelBits) + 1)
		offset := block + r.IntN(function-length+1)
		label := 16 + r.Uint32N(1<<labelBits-16)
		var sid [16]byte
		for i := range sid {
			sid[i] = byte(r.Uint32())
		}
		value := new(big.Int).SetBytes(sid[:])
		bits := label / (1 << (labelBits - length))
		for i := range length {
			value.SetBit(value, 127-offset-i, 0)
		}
		value.Or(value, new(big.Int).Lsh(big.NewInt(int64(bits)), uint(128-offset-length)))
		refused := transpose(&sid, wire.NewSRv6SIDStructureSubSubTLV(uint8(block), 0, uint8(function), 0, uint8(length), uint8(offset)), label)
		if length > 0 && bits == 0 {
			if refused != badLabel {
				t.Fatalf("label %d, %d bits: refused %q", label, length, refused)
			}
			continue
		}
		if want := [16]byte(value.FillBytes(make([]byte, 16))); length > 0 && (sid != want || refused != accepted) {
			t.Fatalf("block %d, function %d, %d bits at %d, label %#x: got %x, want %x, refused %q", block, function, length, offset, label, sid, want, refused)
		}
	}
}

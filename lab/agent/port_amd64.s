#include "textflag.h"

// func outByte(port uint16, value byte)
TEXT ·outByte(SB), NOSPLIT, $0-3
	MOVW port+0(FP), DX
	MOVB value+2(FP), AX
	BYTE $0xEE // OUT DX, AL
	RET

// func outWord(port uint16, value uint16)
TEXT ·outWord(SB), NOSPLIT, $0-4
	MOVW port+0(FP), DX
	MOVW value+2(FP), AX
	BYTE $0x66; BYTE $0xEF // OUT DX, AX
	RET

// func outBytes(port uint16, data *byte, n int)
TEXT ·outBytes(SB), NOSPLIT, $0-24
	MOVW port+0(FP), DX
	MOVQ data+8(FP), SI
	MOVQ n+16(FP), CX
	CLD
	BYTE $0xF3; BYTE $0x6E // REP OUTSB
	RET

// func inBytes(port uint16, data *byte, n int)
TEXT ·inBytes(SB), NOSPLIT, $0-24
	MOVW port+0(FP), DX
	MOVQ data+8(FP), DI
	MOVQ n+16(FP), CX
	CLD
	BYTE $0xF3; BYTE $0x6C // REP INSB
	RET

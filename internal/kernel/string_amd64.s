//go:build !purego

#include "textflag.h"

// func copyString(dst, src unsafe.Pointer, n int)
TEXT ·copyString(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	REP; MOVSB
	RET

// func vendor() (b, c, d uint32)
TEXT ·vendor(SB), NOSPLIT, $0-12
	XORL AX, AX
	XORL CX, CX
	CPUID
	MOVL BX, b+0(FP)
	MOVL CX, c+4(FP)
	MOVL DX, d+8(FP)
	RET

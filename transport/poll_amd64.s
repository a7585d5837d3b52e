//go:build !purego && !race

#include "textflag.h"

// func poll(p *uint64, want uint64, n int) bool
//
// Assembly for the PAUSE, which frees the core's other hardware thread, keeps the load
// queue from filling with guesses that the peer's store undoes, and leaves the peer time
// to store before its line is taken away: see storeLoad. The loop cannot be preempted, so
// callers keep n small.
TEXT ·poll(SB), NOSPLIT, $0-25
	MOVQ p+0(FP), DI
	MOVQ want+8(FP), SI
	MOVQ n+16(FP), CX
	TESTQ CX, CX
	JLE  last
loop:
	PAUSE
	MOVQ (DI), AX
	SUBQ SI, AX
	JNS  yes
	DECQ CX
	JNZ  loop
last:
	MOVQ (DI), AX
	SUBQ SI, AX
	JNS  yes
	MOVB $0, ret+24(FP)
	RET
yes:
	MOVB $1, ret+24(FP)
	RET

// func pause(n int)
TEXT ·pause(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
again:
	PAUSE
	DECQ CX
	JG   again
	RET

// func count(t *[4]uint64, sent, received uint64)
//
// Plain stores: the counters have one writer, and an exchange each would cost
// twenty nanoseconds of a two-hundred-nanosecond operation.
TEXT ·count(SB), NOSPLIT, $0-24
	MOVQ t+0(FP), DI
	MOVQ sent+8(FP), AX
	MOVQ received+16(FP), BX
	ADDQ AX, 0(DI)
	ADDQ BX, 8(DI)
	INCQ 16(DI)
	INCQ 24(DI)
	RET

// func storeLoad(p *uint64, v uint64, flag *uint32, next unsafe.Pointer) uint32
TEXT ·storeLoad(SB), NOSPLIT, $0-36
	MOVQ p+0(FP), DI
	MOVQ v+8(FP), AX
	MOVQ flag+16(FP), SI
	MOVQ next+24(FP), DX
	MOVQ AX, (DI)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x0a // PREFETCHW (DX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x4a; BYTE $0x40 // PREFETCHW 64(DX)
	PAUSE
	MOVL (SI), AX
	MOVL AX, ret+32(FP)
	RET

// func Note(p *uint64, v uint64)
TEXT ·Note(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ v+8(FP), AX
	MOVQ AX, (DI)
	RET

// func Ticks() int64
TEXT ·Ticks(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET

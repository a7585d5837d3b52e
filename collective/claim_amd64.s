#include "textflag.h"

// func claimLines(p unsafe.Pointer, lines int)
TEXT ·claimLines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ lines+8(FP), CX
next:
	CMPQ CX, $0
	JLE  done
	BYTE $0x0f; BYTE $0x0d; BYTE $0x0f // PREFETCHW (DI)
	ADDQ $64, DI
	DECQ CX
	JMP  next
done:
	RET

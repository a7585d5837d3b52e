package main

import (
	"fmt"
	"strings"
)

// Go's arm64 assembler lacks most vector arithmetic, so instructions are encoded here (Arm ARM, "Advanced SIMD") and
// written as words beside their names. V0–V7 accumulate, V16–V19 hold what was loaded or is to be stored, V20–V23 are
// temporary, V24–V27 constants. What does not fill a register of 16 bytes is the twin's.
const (
	raw0   = 16
	tmp0   = 20
	konst0 = 24
)

func (a *asm) word(w uint32, format string, args ...any) {
	fmt.Fprintf(&a.text, "\tWORD $0x%08x // %s\n", w, fmt.Sprintf(format, args...))
}

// same encodes an instruction of three like registers: d = n op m.
type same struct {
	name         string
	u, size, opc uint32
}

func (a *asm) three(op same, d, n, m int) {
	w := 0x4e200400 | op.u<<29 | op.size<<22 | uint32(m)<<16 | op.opc<<11 | uint32(n)<<5 | uint32(d)
	a.word(w, "%s v%d, v%d, v%d", op.name, d, n, m)
}

// double is op for float64 instead of float32.
func double(op same) same {
	op.size |= 1
	op.name += ".2d"
	return op
}

func sized(op same, elem int) same {
	op.size = map[int]uint32{1: 0, 2: 1, 4: 2, 8: 3}[elem]
	op.name += map[int]string{1: ".16b", 2: ".8h", 4: ".4s", 8: ".2d"}[elem]
	return op
}

var (
	add   = same{"add", 0, 0, 0b10000}
	mul   = same{"mul", 0, 0, 0b10011}
	smax  = same{"smax", 0, 0, 0b01100}
	smin  = same{"smin", 0, 0, 0b01101}
	umax  = same{"umax", 1, 0, 0b01100}
	umin  = same{"umin", 1, 0, 0b01101}
	cmgt  = same{"cmgt", 0, 0, 0b00110}
	cmhi  = same{"cmhi", 1, 0, 0b00110}
	and   = same{"and", 0, 0, 0b00011}
	orr   = same{"orr", 0, 2, 0b00011}
	eor   = same{"eor", 1, 0, 0b00011}
	bit   = same{"bit", 1, 2, 0b00011} // d = n where m is set
	bif   = same{"bif", 1, 3, 0b00011} // d = n where m is not set
	fadd  = same{"fadd", 0, 0, 0b11010}
	fmul  = same{"fmul", 1, 0, 0b11011}
	fdiv  = same{"fdiv", 1, 0, 0b11111}
	fmla  = same{"fmla", 0, 0, 0b11001}
	fmax  = same{"fmax", 0, 0, 0b11110}
	fmin  = same{"fmin", 0, 2, 0b11110}
	fcmeq = same{"fcmeq", 0, 0, 0b11100}
)

// misc encodes an instruction of two registers; high works on (or writes) the upper half.
func (a *asm) misc(name string, high bool, u, size, opc uint32, d, n int) {
	w := 0x0e200800 | u<<29 | size<<22 | opc<<12 | uint32(n)<<5 | uint32(d)
	if high {
		w |= 1 << 30
		name += "2"
	}
	a.word(w, "%s v%d, v%d", name, d, n)
}

// fcvtl widens (float16 to float32 with size 0, float32 to float64 with size 1), fcvtn narrows, shll16 widens 16-bit
// words into the upper halves of 32.
func (a *asm) fcvtl(high bool, size uint32, d, n int) { a.misc("fcvtl", high, 0, size, 0b10111, d, n) }

func (a *asm) fcvtn(high bool, size uint32, d, n int) { a.misc("fcvtn", high, 0, size, 0b10110, d, n) }

func (a *asm) shll16(high bool, d, n int) { a.misc("shll #16", high, 1, 1, 0b10011, d, n) }

// shift encodes shifts of 32-bit lanes, and the narrowing one (shrn).
func (a *asm) ushr16(d, n int) {
	a.word(0x6f000400|uint32(64-16)<<16|uint32(n)<<5|uint32(d), "ushr v%d.4s, v%d.4s, #16", d, n)
}

func (a *asm) shl16(d, n int) {
	a.word(0x4f005400|uint32(32+16)<<16|uint32(n)<<5|uint32(d), "shl v%d.4s, v%d.4s, #16", d, n)
}

func (a *asm) shrn16(high bool, d, n int) {
	w := uint32(0x0f008400) | uint32(32-16)<<16 | uint32(n)<<5 | uint32(d)
	name := "shrn"
	if high {
		w |= 1 << 30
		name = "shrn2"
	}
	a.word(w, "%s v%d, v%d, #16", name, d, n)
}

// konst fills a constant register with 32- or 64-bit lanes.
func (a *asm) konst(reg int, v uint64, lane string) {
	a.in("MOVD $0x%x, R9", v)
	a.in("VDUP R9, V%d.%s", reg, lane)
}

// armFold is a kernel as fold is on amd64, between registers. regs accumulators belong to one register of memory; where
// that is one, it is the accumulator itself.
type armFold struct {
	op, t string
	elem  int
	regs  int
	setup func(*asm)
	load  func(a *asm, acc, raw int) // nil: nothing to do
	join  func(a *asm, acc, raw int)
	store func(a *asm, acc, raw int) // leaves the result in raw; nil: the accumulator is it
}

func list(first, n int) string {
	regs := make([]string, n)
	for i := range regs {
		regs[i] = fmt.Sprintf("V%d.B16", first+i)
	}
	return "[" + strings.Join(regs, ", ") + "]"
}

// first is where loads of the first source go.
func (f *armFold) first() int {
	if f.regs == 1 {
		return 0
	}
	return raw0
}

func (f *armFold) loadAll(a *asm, u int) {
	for i := 0; i < u && f.load != nil; i++ {
		f.load(a, i*f.regs, f.first()+i)
	}
}

func (f *armFold) joinAll(a *asm, u int) {
	for i := range u {
		f.join(a, i*f.regs, raw0+i)
	}
}

// storeAll returns the first of the registers to store.
func (f *armFold) storeAll(a *asm, u int) int {
	if f.store == nil {
		return 0
	}
	for i := range u {
		f.store(a, i*f.regs, raw0+i)
	}
	return raw0
}

func (f *armFold) pair(a *asm) {
	a.function("pair"+f.op+f.t+"NEON", "(dst, a, b unsafe.Pointer, n int)", 32)
	a.in("MOVD dst+0(FP), R0")
	a.in("MOVD a+8(FP), R1")
	a.in("MOVD b+16(FP), R2")
	a.in("MOVD n+24(FP), R3")
	f.setup(a)
	per := 16 / f.elem
	f.loops(a, per, func(u int) {
		a.in("VLD1.P %d(R1), %s", 16*u, list(f.first(), u))
		f.loadAll(a, u)
		a.in("VLD1.P %d(R2), %s", 16*u, list(raw0, u))
		f.joinAll(a, u)
		out := f.storeAll(a, u)
		a.in("VST1.P %s, %d(R0)", list(out, u), 16*u)
	})
}

func (f *armFold) many(a *asm) {
	a.function("many"+f.op+f.t+"NEON", "(dst unsafe.Pointer, srcs *unsafe.Pointer, k, from, n int)", 40)
	a.in("MOVD dst+0(FP), R0")
	a.in("MOVD srcs+8(FP), R1")
	a.in("MOVD k+16(FP), R2")
	a.in("MOVD from+24(FP), R4")
	a.in("MOVD n+32(FP), R3")
	a.in("ADD R4, R0, R0")
	f.setup(a)
	per := 16 / f.elem
	f.loops(a, per, func(u int) {
		label := fmt.Sprintf("sources%d", u)
		a.in("MOVD (R1), R5")
		a.in("ADD R4, R5, R5")
		a.in("VLD1 (R5), %s", list(f.first(), u))
		f.loadAll(a, u)
		a.in("MOVD $1, R6")
		a.at(label)
		a.in("MOVD (R1)(R6<<3), R5")
		a.in("ADD R4, R5, R5")
		a.in("VLD1 (R5), %s", list(raw0, u))
		f.joinAll(a, u)
		a.in("ADD $1, R6, R6")
		a.in("CMP R2, R6")
		a.in("BLT %s", label)
		out := f.storeAll(a, u)
		a.in("VST1.P %s, %d(R0)", list(out, u), 16*u)
		a.in("ADD $%d, R4, R4", 16*u)
	})
}

// loops emits the loop of four registers a turn and that of one. R3 holds the count.
func (f *armFold) loops(a *asm, per int, body func(u int)) { armLoops(a, per, 4, body) }

func armLoops(a *asm, per, u int, body func(u int)) {
	a.in("SUBS $%d, R3, R3", u*per)
	a.in("BLT rest")
	a.at("loop")
	body(u)
	a.in("SUBS $%d, R3, R3", u*per)
	a.in("BGE loop")
	a.at("rest")
	a.in("ADDS $%d, R3, R3", (u-1)*per)
	a.in("BLT done")
	a.at("one")
	body(1)
	a.in("SUBS $%d, R3, R3", per)
	a.in("BGE one")
	a.at("done")
	a.in("RET")
}

func armPlain(op, t string, elem int, ins same) *armFold {
	return &armFold{
		op: op, t: t, elem: elem, regs: 1, setup: func(*asm) {},
		join: func(a *asm, acc, raw int) { a.three(ins, acc, acc, raw) },
	}
}

// armExtreme propagates NaN and orders zeros by itself; what is NaN becomes the one in konst0.
func armExtreme(a *asm, op string, wide bool, acc, x int) {
	ins, eq := map[string]same{"Min": fmin, "Max": fmax}[op], fcmeq
	if wide {
		ins, eq = double(ins), double(eq)
	}
	a.three(ins, acc, acc, x)
	a.three(eq, tmp0+3, acc, acc)
	a.three(bif, acc, konst0, tmp0+3)
}

func armFloat(op, t string, elem int) *armFold {
	wide := elem == 8
	switch op {
	case "Sum", "Product":
		ins := map[string]same{"Sum": fadd, "Product": fmul}[op]
		if wide {
			ins = double(ins)
		}
		return armPlain(op, t, elem, ins)
	}
	f := armPlain(op, t, elem, same{})
	f.setup = func(a *asm) {
		if wide {
			a.konst(konst0, 0x7ff8000000000000, "D2")
		} else {
			a.konst(konst0, 0x7fc00000, "S4")
		}
	}
	f.join = func(a *asm, acc, raw int) { armExtreme(a, op, wide, acc, raw) }
	return f
}

func armNarrowJoin(a *asm, op string, acc, x int) {
	switch op {
	case "Sum":
		a.three(fadd, acc, acc, x)
	case "Product":
		a.three(fmul, acc, acc, x)
	default:
		armExtreme(a, op, false, acc, x)
	}
}

func armFloat16(op string) *armFold {
	f := &armFold{op: op, t: "Float16", elem: 2, regs: 2}
	f.setup = func(a *asm) { a.konst(konst0, 0x7fc00000, "S4") }
	f.load = func(a *asm, acc, raw int) {
		a.fcvtl(false, 0, acc, raw)
		a.fcvtl(true, 0, acc+1, raw)
	}
	f.join = func(a *asm, acc, raw int) {
		f.load(a, tmp0, raw)
		armNarrowJoin(a, op, acc, tmp0)
		armNarrowJoin(a, op, acc+1, tmp0+1)
	}
	f.store = func(a *asm, acc, raw int) {
		a.fcvtn(false, 0, raw, acc)
		a.fcvtn(true, 0, raw, acc+1)
	}
	return f
}

// armBFloat16 works as on amd64: even elements shifted up, odd ones masked by konst0+1.
func armBFloat16(op string) *armFold {
	f := &armFold{op: op, t: "BFloat16", elem: 2, regs: 2}
	f.setup = func(a *asm) {
		a.konst(konst0, 0x7fc00000, "S4")
		a.konst(konst0+1, 0xffff0000, "S4")
		a.konst(konst0+2, 1, "S4")
		a.konst(konst0+3, 0x7fff, "S4")
	}
	f.load = func(a *asm, acc, raw int) {
		a.shl16(acc, raw)
		a.three(and, acc+1, raw, konst0+1)
	}
	f.join = func(a *asm, acc, raw int) {
		f.load(a, tmp0, raw)
		armNarrowJoin(a, op, acc, tmp0)
		armNarrowJoin(a, op, acc+1, tmp0+1)
	}
	f.store = func(a *asm, acc, raw int) {
		if op != "Min" && op != "Max" {
			armRoundBFloat16(a, acc)
			armRoundBFloat16(a, acc+1)
		}
		a.ushr16(raw, acc)
		a.three(bit, raw, acc+1, konst0+1)
	}
	return f
}

// armRoundBFloat16 needs no care for NaNs, as on amd64.
func armRoundBFloat16(a *asm, acc int) {
	a.ushr16(tmp0, acc)
	a.three(and, tmp0, tmp0, konst0+2)
	a.three(sized(add, 4), tmp0, tmp0, konst0+3)
	a.three(sized(add, 4), acc, acc, tmp0)
}

func armTruth(op string) *armFold {
	f := &armFold{op: op, t: "Bool", elem: 1, regs: 1}
	f.setup = func(a *asm) { a.konst(konst0, 0x0101010101010101, "D2") }
	one := sized(umin, 1)
	f.load = func(a *asm, acc, raw int) { a.three(one, acc, raw, konst0) }
	f.join = func(a *asm, acc, raw int) {
		a.three(one, tmp0, raw, konst0)
		a.three(map[string]same{"Or": orr, "And": and, "Xor": eor}[op], acc, acc, tmp0)
	}
	return f
}

// armExtreme64 compares and picks: there is no min or max of 64-bit integers.
func armExtreme64(op, t string) *armFold {
	f := armPlain(op, t, 8, same{})
	greater := sized(map[string]same{"Uint64": cmhi, "Int64": cmgt}[t], 8)
	f.join = func(a *asm, acc, raw int) {
		if op == "Min" {
			a.three(greater, tmp0, acc, raw)
		} else {
			a.three(greater, tmp0, raw, acc)
		}
		a.three(bit, acc, raw, tmp0)
	}
	return f
}

func armFolds() []*armFold {
	var all []*armFold
	for _, op := range []string{"Or", "And", "Xor"} {
		all = append(all, armTruth(op))
	}
	for _, elem := range []int{1, 2, 4, 8} {
		unsigned, signed := fmt.Sprintf("Uint%d", 8*elem), fmt.Sprintf("Int%d", 8*elem)
		all = append(all, armPlain("Sum", unsigned, elem, sized(add, elem)))
		if elem < 8 {
			all = append(all, armPlain("Product", unsigned, elem, sized(mul, elem)))
		}
		for _, t := range []string{unsigned, signed} {
			pick := map[string]same{"Min": smin, "Max": smax}
			if t == unsigned {
				pick = map[string]same{"Min": umin, "Max": umax}
			}
			for _, op := range []string{"Min", "Max"} {
				if elem == 8 {
					all = append(all, armExtreme64(op, t))
				} else {
					all = append(all, armPlain(op, t, elem, sized(pick[op], elem)))
				}
			}
			if t == "Uint8" {
				all = append(all, armPlain("And", t, 1, and), armPlain("Or", t, 1, orr), armPlain("Xor", t, 1, eor))
			}
		}
	}
	ops := []string{"Sum", "Product", "Min", "Max"}
	for _, op := range ops {
		all = append(all, armFloat16(op))
	}
	for _, op := range ops {
		all = append(all, armBFloat16(op))
	}
	for _, op := range ops {
		all = append(all, armFloat(op, "Float32", 4))
	}
	for _, op := range ops {
		all = append(all, armFloat(op, "Float64", 8))
	}
	return all
}

func neonChoosers() string {
	var as []*fold
	for _, f := range armFolds() {
		as = append(as, &fold{op: f.op, t: f.t, elem: f.elem})
	}
	return pairAndMany("NEON", as, func(f *fold) int { return 16 / f.elem })
}

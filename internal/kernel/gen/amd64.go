package main

import (
	"fmt"
	"strings"
)

// isa is one of the two register widths of amd64. Registers 0–7 accumulate, 8–11 are temporary, 12–15 hold constants;
// with AVX-512, 20 holds the masked operand of a tail. The wider set finishes any length by masks; the narrower
// leaves what does not fill a register to the twin.
type isa struct {
	name, suffix string
	reg          string // Y or Z
	width        int    // bytes of a register
	wide         bool   // AVX-512: masks, three-way logic
}

var (
	avx2   = &isa{name: "avx2", suffix: "AVX2", reg: "Y", width: 32}
	avx512 = &isa{name: "avx512", suffix: "AVX512", reg: "Z", width: 64, wide: true}
)

// r names a register, half the one of half the width with the same number.
func (s *isa) r(i int) string { return fmt.Sprintf("%s%d", s.reg, i) }

// half names the register of half the width.
func (s *isa) half(i int) string {
	if s.wide {
		return fmt.Sprintf("Y%d", i)
	}
	return fmt.Sprintf("X%d", i)
}

// pick is a where registers are wide, else b.
func (s *isa) pick(a, b string) string {
	if s.wide {
		return a
	}
	return b
}

// masked is the instruction that moves elements of that size under K1.
func masked(elem int) string { return fmt.Sprintf("VMOVDQU%d", 8*elem) }

const (
	maskedOperand = 20
	const0        = 12
	const1        = 13
	const2        = 14
	const3        = 15
)

// fold is one kernel. load puts operand x (memory or register) into the accumulators from acc on, join combines x
// into them, store rounds and writes them. mem is the number of bytes that one step reads of each source.
type fold struct {
	op, t string // names of tensor's constants
	elem  int
	mem   func(*isa) int
	regs  int
	setup func(*isa, *asm)
	load  func(*isa, *asm, int, string)
	join  func(*isa, *asm, int, string)
	store func(*isa, *asm, int, string) // x is memory, or a register that a masked store writes from
}

func (s *isa) broadcast32(a *asm, reg int, v uint32) {
	a.in("MOVL $0x%08x, AX", v)
	if s.wide {
		a.in("VPBROADCASTD AX, %s", s.r(reg))
		return
	}
	a.in("VMOVD AX, X%d", reg)
	a.in("VPBROADCASTD X%d, %s", reg, s.r(reg))
}

func (s *isa) broadcast64(a *asm, reg int, v uint64) {
	a.in("MOVQ $0x%016x, AX", v)
	if s.wide {
		a.in("VPBROADCASTQ AX, %s", s.r(reg))
		return
	}
	a.in("VMOVQ AX, X%d", reg)
	a.in("VPBROADCASTQ X%d, %s", reg, s.r(reg))
}

// unroll is how many steps one turn of the main loop does.
func (f *fold) unroll() int {
	if f.regs == 2 {
		return 2
	}
	return 4
}

func (s *isa) all(a *asm) {
	for _, f := range folds(s) {
		s.pair(a, f)
		s.many(a, f)
	}
	s.conversions(a)
	s.float8(a)
	s.scaling(a)
	s.adasum(a)
	s.copies(a)
}

// fetch is how far ahead of use lines are asked for: what another core has just written comes 5 to 10 % faster from
// 64 KiB on; a sum of 4 KiB that lies in the first-level cache takes 20 ns more. Never past the end: the peer may be
// writing there.
const fetch = 2048

// fetchAhead puts the distance for this turn into R11: 0, which asks for what is read anyway, where the end is near.
func fetchAhead(a *asm, f *fold) {
	a.in("CMPQ CX, $%d", fetch/f.elem)
	a.in("CMOVQLT R12, R11")
}

func fetchBegin(a *asm) {
	a.in("MOVQ $%d, R11", fetch)
	a.in("XORQ R12, R12")
}

// pair emits dst = a op b.
func (s *isa) pair(a *asm, f *fold) {
	name := "pair" + f.op + f.t + s.suffix
	step := f.mem(s)
	per, u := step/f.elem, f.unroll()
	a.function(name, "(dst, a, b unsafe.Pointer, n int)", 32)
	a.in("MOVQ dst+0(FP), DI")
	a.in("MOVQ a+8(FP), SI")
	a.in("MOVQ b+16(FP), DX")
	a.in("MOVQ n+24(FP), CX")
	f.setup(s, a)
	advance := func(bytes int) {
		a.in("ADDQ $%d, SI", bytes)
		a.in("ADDQ $%d, DX", bytes)
		a.in("ADDQ $%d, DI", bytes)
	}
	a.in("SUBQ $%d, CX", u*per)
	a.in("JLT rest")
	fetchBegin(a)
	a.in("PCALIGN $32")
	a.at("loop")
	fetchAhead(a, f)
	for i := 0; i < u*step; i += 64 {
		a.in("PREFETCHT0 %d(SI)(R11*1)", i)
		a.in("PREFETCHT0 %d(DX)(R11*1)", i)
	}
	for i := range u {
		f.load(s, a, i*f.regs, fmt.Sprintf("%d(SI)", i*step))
	}
	for i := range u {
		f.join(s, a, i*f.regs, fmt.Sprintf("%d(DX)", i*step))
	}
	for i := range u {
		f.store(s, a, i*f.regs, fmt.Sprintf("%d(DI)", i*step))
	}
	advance(u * step)
	a.in("SUBQ $%d, CX", u*per)
	a.in("JGE loop")
	a.at("rest")
	a.in("ADDQ $%d, CX", (u-1)*per)
	a.in("JLT tail")
	a.at("one")
	f.load(s, a, 0, "(SI)")
	f.join(s, a, 0, "(DX)")
	f.store(s, a, 0, "(DI)")
	advance(step)
	a.in("SUBQ $%d, CX", per)
	a.in("JGE one")
	a.at("tail")
	if s.wide {
		s.mask(a, per)
		x := s.tailOperand(a, f, "(SI)")
		f.load(s, a, 0, x)
		x = s.tailOperand(a, f, "(DX)")
		f.join(s, a, 0, x)
		s.tailStore(a, f, "(DI)")
		a.at("done")
	}
	a.in("VZEROUPPER")
	a.in("RET")
}

// mask sets K1 to the elements left: CX holds their number less per. None left: to done.
func (s *isa) mask(a *asm, per int) {
	a.in("ADDQ $%d, CX", per)
	a.in("JEQ done")
	a.in("MOVQ $-1, AX")
	a.in("BZHIQ CX, AX, AX")
	a.in("KMOVQ AX, K1")
}

// tailOperand loads the masked rest of a source and names the register.
func (s *isa) tailOperand(a *asm, f *fold, addr string) string {
	r := s.r(maskedOperand)
	if f.mem(s) < s.width {
		r = s.half(maskedOperand)
	}
	a.in("%s.Z %s, K1, %s", masked(f.elem), addr, r)
	return r
}

func (s *isa) tailStore(a *asm, f *fold, addr string) {
	r := s.r(maskedOperand)
	if f.mem(s) < s.width {
		r = s.half(maskedOperand)
	}
	f.store(s, a, 0, r)
	a.in("%s %s, K1, %s", masked(f.elem), r, addr)
}

// many emits dst = s0 op s1 op … over elements that start from bytes after each pointer.
func (s *isa) many(a *asm, f *fold) {
	name := "many" + f.op + f.t + s.suffix
	step := f.mem(s)
	per, u := step/f.elem, f.unroll()
	a.function(name, "(dst unsafe.Pointer, srcs *unsafe.Pointer, k, from, n int)", 40)
	a.in("MOVQ dst+0(FP), DI")
	a.in("MOVQ srcs+8(FP), BX")
	a.in("MOVQ k+16(FP), R10")
	a.in("MOVQ from+24(FP), R8")
	a.in("MOVQ n+32(FP), CX")
	f.setup(s, a)
	body := func(label string, u int) {
		ask := func() {
			for i := 0; i < u*step && u > 1; i += 64 {
				a.in("PREFETCHT0 %d(SI)(R13*1)", i)
			}
		}
		a.in("MOVQ (BX), SI")
		ask()
		for i := range u {
			f.load(s, a, i*f.regs, fmt.Sprintf("%d(SI)(R8*1)", i*step))
		}
		a.in("MOVQ $1, R9")
		a.at(label)
		a.in("MOVQ (BX)(R9*8), SI")
		ask()
		for i := range u {
			f.join(s, a, i*f.regs, fmt.Sprintf("%d(SI)(R8*1)", i*step))
		}
		a.in("INCQ R9")
		a.in("CMPQ R9, R10")
		a.in("JLT %s", label)
		for i := range u {
			f.store(s, a, i*f.regs, fmt.Sprintf("%d(DI)(R8*1)", i*step))
		}
		a.in("ADDQ $%d, R8", u*step)
	}
	a.in("SUBQ $%d, CX", u*per)
	a.in("JLT rest")
	fetchBegin(a)
	a.at("loop")
	fetchAhead(a, f)
	a.in("LEAQ (R8)(R11*1), R13")
	body("sources", u)
	a.in("SUBQ $%d, CX", u*per)
	a.in("JGE loop")
	a.at("rest")
	a.in("ADDQ $%d, CX", (u-1)*per)
	a.in("JLT tail")
	a.at("one")
	body("single", 1)
	a.in("SUBQ $%d, CX", per)
	a.in("JGE one")
	a.at("tail")
	if s.wide {
		s.mask(a, per)
		a.in("MOVQ (BX), SI")
		f.load(s, a, 0, s.tailOperand(a, f, "(SI)(R8*1)"))
		a.in("MOVQ $1, R9")
		a.at("last")
		a.in("MOVQ (BX)(R9*8), SI")
		f.join(s, a, 0, s.tailOperand(a, f, "(SI)(R8*1)"))
		a.in("INCQ R9")
		a.in("CMPQ R9, R10")
		a.in("JLT last")
		s.tailStore(a, f, "(DI)(R8*1)")
		a.at("done")
	}
	a.in("VZEROUPPER")
	a.in("RET")
}

// choosers writes the Go functions that pick a kernel by type and operator. Each returns the number of elements done.
func (s *isa) choosers() string {
	per := func(f *fold) int {
		if s.wide {
			return 1
		}
		return f.mem(s) / f.elem
	}
	return pairAndMany(s.suffix, folds(s), per)
}

func pairAndMany(suffix string, all []*fold, per func(*fold) int) string {
	return chooser("pair", suffix, "dst, a, b unsafe.Pointer, n int", "dst, a, b, n", "dst, a, b, n", all, per) +
		chooser("many", suffix, "dst unsafe.Pointer, srcs []unsafe.Pointer, from, n int", "dst, srcs, from, n",
			"dst, unsafe.SliceData(srcs), len(srcs), from, n", all, per)
}

// chooser writes a switch over types, and for each type a function with a switch over its operators. params are the
// Go function's parameters, pass their names, args what the assembly takes.
func chooser(prefix, suffix, params, pass, args string, all []*fold, per func(*fold) int) string {
	var types, ops strings.Builder
	fmt.Fprintf(&types, "func %s%s(%s, t tensor.DType, op tensor.Op) int {\n\tswitch t {\n", prefix, suffix, params)
	for i := 0; i < len(all); {
		t := all[i].t
		fmt.Fprintf(&types, "\tcase tensor.%s:\n\t\treturn %s%s%s(%s, op)\n", t, prefix, t, suffix, pass)
		fmt.Fprintf(&ops, "func %s%s%s(%s, op tensor.Op) int {\n", prefix, t, suffix, params)
		if p := per(all[i]); p > 1 {
			fmt.Fprintf(&ops, "\tif n &^= %d; n == 0 {\n\t\treturn 0\n\t}\n", p-1)
		}
		ops.WriteString("\tswitch op {\n")
		for ; i < len(all) && all[i].t == t; i++ {
			fmt.Fprintf(&ops, "\tcase tensor.%s:\n\t\t%s%s%s%s(%s)\n", all[i].op, prefix, all[i].op, t, suffix, args)
		}
		ops.WriteString("\tdefault:\n\t\treturn 0\n\t}\n\treturn n\n}\n\n")
	}
	types.WriteString("\t}\n\treturn 0\n}\n\n")
	return types.String() + ops.String()
}

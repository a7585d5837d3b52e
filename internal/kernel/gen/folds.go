package main

import "fmt"

func full(s *isa) int   { return s.width }
func halved(s *isa) int { return s.width / 2 }

func nothing(*isa, *asm) {}

func inMemory(x string) bool { return x[len(x)-1] == ')' }

// register brings x into a register: itself, or the one given.
func (s *isa) register(a *asm, x string, tmp int) string {
	if !inMemory(x) {
		return x
	}
	a.in("%s %s, %s", s.pick("VMOVDQU64", "VMOVDQU"), x, s.r(tmp))
	return s.r(tmp)
}

// move writes a whole register to memory or to another register.
func (s *isa) move(a *asm, from int, to string) {
	a.in("%s %s, %s", s.pick("VMOVDQU64", "VMOVDQU"), s.r(from), to)
}

func (s *isa) bitwise(op string) string { return op + s.pick("Q", "") }

// plain is a fold of one instruction on whole registers.
func plain(op, t string, elem int, instruction string) *fold {
	return &fold{
		op: op, t: t, elem: elem, mem: full, regs: 1, setup: nothing,
		load: func(s *isa, a *asm, acc int, x string) {
			a.in("%s %s, %s", s.pick("VMOVDQU64", "VMOVDQU"), x, s.r(acc))
		},
		join: func(s *isa, a *asm, acc int, x string) {
			a.in("%s %s, %s, %s", instruction, x, s.r(acc), s.r(acc))
		},
		store: func(s *isa, a *asm, acc int, x string) { s.move(a, acc, x) },
	}
}

// extreme emits acc = min or max of acc and register x; const0 is the NaN. AVX2's instruction returns its second
// operand for zeros and NaNs, so it is done both ways: or-ing (and-ing) the two makes -0 (+0) win.
func (s *isa) extreme(a *asm, op, p string, acc int, x string, t1, t2 int) {
	ins, both := "VMIN"+p, "VPOR"
	if op == "Max" {
		ins, both = "VMAX"+p, "VPAND"
	}
	r := s.r(acc)
	if s.wide {
		// VRANGE orders zeros by itself: 4 is min, 5 max, with the sign of what was chosen.
		a.in("VRANGE%s $%d, %s, %s, %s", p, map[string]int{"Min": 4, "Max": 5}[op], x, r, s.r(t1))
		a.in("VCMP%s $3, %s, %s, K2", p, x, r)
		a.in("VBLENDM%s %s, %s, K2, %s", p, s.r(const0), s.r(t1), r)
		return
	}
	a.in("%s %s, %s, %s", ins, x, r, s.r(t1))
	a.in("%s %s, %s, %s", ins, r, x, s.r(t2))
	a.in("%s %s, %s, %s", both, s.r(t1), s.r(t2), s.r(t1))
	a.in("VCMP%s $3, %s, %s, %s", p, x, r, s.r(t2))
	a.in("VBLENDV%s %s, %s, %s, %s", p, s.r(t2), s.r(const0), s.r(t1), r)
}

func floatExtreme(op, t string, elem int, p string) *fold {
	f := plain(op, t, elem, "")
	f.setup = func(s *isa, a *asm) {
		if p == "PS" {
			s.broadcast32(a, const0, 0x7fc00000)
		} else {
			s.broadcast64(a, const0, 0x7ff8000000000000)
		}
	}
	f.join = func(s *isa, a *asm, acc int, x string) {
		s.extreme(a, op, p, acc, s.register(a, x, 8), 9, 10)
	}
	return f
}

// wideExtreme is min or max of 64-bit integers where there is no instruction for it: compare and
// blend. Flipping the sign bits makes unsigned numbers compare as signed.
func wideExtreme(op, t string) *fold {
	f := plain(op, t, 8, "")
	unsigned := t == "Uint64"
	f.setup = func(s *isa, a *asm) {
		if unsigned {
			s.broadcast64(a, const0, 1<<63)
		}
	}
	f.join = func(s *isa, a *asm, acc int, x string) {
		x = s.register(a, x, 8)
		l, r := s.r(acc), x
		if unsigned {
			a.in("VPXOR %s, %s, %s", s.r(const0), l, s.r(9))
			a.in("VPXOR %s, %s, %s", s.r(const0), x, s.r(10))
			l, r = s.r(9), s.r(10)
		}
		a.in("VPCMPGTQ %s, %s, %s", r, l, s.r(9)) // where the accumulator is greater
		if op == "Min" {
			a.in("VBLENDVPD %s, %s, %s, %s", s.r(9), x, s.r(acc), s.r(acc))
		} else {
			a.in("VBLENDVPD %s, %s, %s, %s", s.r(9), s.r(acc), x, s.r(acc))
		}
	}
	return f
}

// bytesProduct multiplies the odd and even bytes of 16-bit words apart.
func bytesProduct() *fold {
	f := plain("Product", "Uint8", 1, "")
	f.setup = func(s *isa, a *asm) { s.broadcast32(a, const0, 0x00ff00ff) }
	f.join = func(s *isa, a *asm, acc int, x string) {
		x = s.register(a, x, 8)
		a.in("VPSRLW $8, %s, %s", s.r(acc), s.r(9))
		a.in("VPSRLW $8, %s, %s", x, s.r(10))
		a.in("VPMULLW %s, %s, %s", s.r(9), s.r(10), s.r(9))
		a.in("VPSLLW $8, %s, %s", s.r(9), s.r(9))
		a.in("VPMULLW %s, %s, %s", x, s.r(acc), s.r(acc))
		a.in("%s %s, %s, %s", s.bitwise("VPAND"), s.r(const0), s.r(acc), s.r(acc))
		a.in("%s %s, %s, %s", s.bitwise("VPOR"), s.r(9), s.r(acc), s.r(acc))
	}
	return f
}

// truth folds bool: any byte but 0 is true. const0 is 1 in every byte.
func truth(op string) *fold {
	f := plain(op, "Bool", 1, "")
	f.setup = func(s *isa, a *asm) { s.broadcast32(a, const0, 0x01010101) }
	one := func(s *isa, a *asm, x string, to int) {
		a.in("VPMINUB %s, %s, %s", x, s.r(const0), s.r(to))
	}
	f.load = func(s *isa, a *asm, acc int, x string) { one(s, a, x, acc) }
	f.join = func(s *isa, a *asm, acc int, x string) {
		one(s, a, x, 8)
		a.in("%s %s, %s, %s", s.bitwise(map[string]string{"Or": "VPOR", "And": "VPAND", "Xor": "VPXOR"}[op]), s.r(8), s.r(acc), s.r(acc))
	}
	return f
}

// float16 folds in float32, half a register of memory a step.
func float16(op string) *fold {
	f := &fold{op: op, t: "Float16", elem: 2, mem: halved, regs: 1, setup: nothing}
	f.load = func(s *isa, a *asm, acc int, x string) { a.in("VCVTPH2PS %s, %s", x, s.r(acc)) }
	f.store = func(s *isa, a *asm, acc int, x string) { a.in("VCVTPS2PH $0, %s, %s", s.r(acc), x) }
	f.join = func(s *isa, a *asm, acc int, x string) {
		a.in("VCVTPH2PS %s, %s", x, s.r(8))
		s.narrowJoin(a, op, acc, 8, 9, 10)
	}
	if op == "Min" || op == "Max" {
		f.setup = func(s *isa, a *asm) { s.broadcast32(a, const0, 0x7fc00000) }
	}
	return f
}

func (s *isa) narrowJoin(a *asm, op string, acc, x, t1, t2 int) {
	switch op {
	case "Sum":
		a.in("VADDPS %s, %s, %s", s.r(x), s.r(acc), s.r(acc))
	case "Product":
		a.in("VMULPS %s, %s, %s", s.r(x), s.r(acc), s.r(acc))
	default:
		s.extreme(a, op, "PS", acc, s.r(x), t1, t2)
	}
}

// bfloat16 takes a register of memory apart into its even elements, shifted up, and its odd
// ones, masked: no lane is crossed. const1 masks the upper halves; const2 and const3 serve rounding.
func bfloat16(op string) *fold {
	f := &fold{op: op, t: "BFloat16", elem: 2, mem: full, regs: 2}
	exact := op == "Min" || op == "Max"
	f.setup = func(s *isa, a *asm) {
		s.broadcast32(a, const1, 0xffff0000)
		if exact {
			s.broadcast32(a, const0, 0x7fc00000)
			return
		}
		s.roundConstants(a)
	}
	apart := func(s *isa, a *asm, x string, even, odd, tmp int) {
		if s.wide {
			a.in("VPSLLD $16, %s, %s", x, s.r(even))
			a.in("VPANDD %s, %s, %s", x, s.r(const1), s.r(odd))
			return
		}
		a.in("VMOVDQU %s, %s", x, s.r(tmp))
		a.in("VPSLLD $16, %s, %s", s.r(tmp), s.r(even))
		a.in("VPAND %s, %s, %s", s.r(tmp), s.r(const1), s.r(odd))
	}
	f.load = func(s *isa, a *asm, acc int, x string) { apart(s, a, x, acc, acc+1, 10) }
	f.join = func(s *isa, a *asm, acc int, x string) {
		apart(s, a, x, 8, 9, 10)
		s.narrowJoin(a, op, acc, 8, 10, 11)
		s.narrowJoin(a, op, acc+1, 9, 10, 11)
	}
	f.store = func(s *isa, a *asm, acc int, x string) {
		if !exact {
			s.roundBFloat16(a, acc, 8)
			s.roundBFloat16(a, acc+1, 9)
		}
		a.in("VPSRLD $16, %s, %s", s.r(acc), s.r(acc))
		if s.wide {
			a.in("VPTERNLOGD $0xf8, %s, %s, %s", s.r(const1), s.r(acc+1), s.r(acc)) // acc | (acc+1 & mask)
		} else {
			a.in("VPBLENDW $0xaa, %s, %s, %s", s.r(acc+1), s.r(acc), s.r(acc))
		}
		s.move(a, acc, x)
	}
	return f
}

// roundBFloat16 adds half a unit to each float32 of acc, to even. NaNs need no care: theirs come from bfloat16
// operands, so the 16 bits below are zero and nothing carries.
func (s *isa) roundBFloat16(a *asm, acc, tmp int) {
	r := s.r(acc)
	if s.wide { // half a unit up; a tie leaves zeros below, and then the last bit kept is cleared
		a.in("VPADDD %s, %s, %s", s.r(const3), r, r)
		a.in("VPTESTNMD %s, %s, K2", s.r(const2), r)
		a.in("VPANDD %s, %s, K2, %s", s.r(const0), r, r)
		return
	}
	a.in("VPSRLD $16, %s, %s", r, s.r(tmp))
	a.in("VPAND %s, %s, %s", s.r(const2), s.r(tmp), s.r(tmp))
	a.in("VPADDD %s, %s, %s", s.r(const3), s.r(tmp), s.r(tmp))
	a.in("VPADDD %s, %s, %s", s.r(tmp), r, r)
}

// roundConstants are what roundBFloat16 reads. With AVX-512 it takes const0 too.
func (s *isa) roundConstants(a *asm) {
	if s.wide {
		s.broadcast32(a, const0, 0xfffeffff)
		s.broadcast32(a, const2, 0xffff)
		s.broadcast32(a, const3, 0x8000)
		return
	}
	s.broadcast32(a, const2, 1)
	s.broadcast32(a, const3, 0x7fff)
}

// folds lists every kernel, by type.
func folds(s *isa) []*fold {
	var all []*fold
	for _, op := range []string{"Or", "And", "Xor"} {
		all = append(all, truth(op))
	}
	for i, letter := range []string{"B", "W", "D", "Q"} {
		bits := 8 << i
		unsigned, signed := fmt.Sprintf("Uint%d", bits), fmt.Sprintf("Int%d", bits)
		all = append(all, plain("Sum", unsigned, bits/8, "VPADD"+letter))
		switch {
		case bits == 8:
			all = append(all, bytesProduct())
		case bits < 64 || s.wide:
			all = append(all, plain("Product", unsigned, bits/8, "VPMULL"+letter))
		}
		for _, t := range []string{unsigned, signed} {
			sign := map[bool]string{true: "U", false: "S"}[t == unsigned]
			for _, op := range []string{"Min", "Max"} {
				if bits == 64 && !s.wide {
					all = append(all, wideExtreme(op, t))
					continue
				}
				ins := map[string]string{"Min": "VPMIN", "Max": "VPMAX"}[op] + sign + letter
				all = append(all, plain(op, t, bits/8, ins))
			}
			if t == "Uint8" {
				all = append(all, plain("And", t, 1, s.bitwise("VPAND")), plain("Or", t, 1, s.bitwise("VPOR")),
					plain("Xor", t, 1, s.bitwise("VPXOR")))
			}
		}
	}
	for _, op := range []string{"Sum", "Product", "Min", "Max"} {
		all = append(all, float16(op))
	}
	for _, op := range []string{"Sum", "Product", "Min", "Max"} {
		all = append(all, bfloat16(op))
	}
	for _, f := range []struct {
		t, p string
		elem int
	}{{"Float32", "PS", 4}, {"Float64", "PD", 8}} {
		all = append(all, plain("Sum", f.t, f.elem, "VADD"+f.p), plain("Product", f.t, f.elem, "VMUL"+f.p),
			floatExtreme("Min", f.t, f.elem, f.p), floatExtreme("Max", f.t, f.elem, f.p))
	}
	return all
}

package main

import "fmt"

// mapped emits the loop of a function of one source and one destination, n elements, per a step. With
// AVX-512 tail, if given, finishes under K1; else what is left is the twin's.
func (s *isa) mapped(
	a *asm, per, srcStep, dstStep, unroll int, body func(src, dst string, acc int), regs int, tail func(),
) {
	a.in("SUBQ $%d, CX", unroll*per)
	a.in("JLT rest")
	a.at("loop")
	for i := range unroll {
		body(fmt.Sprintf("%d(SI)", i*srcStep), fmt.Sprintf("%d(DI)", i*dstStep), i*regs)
	}
	a.in("ADDQ $%d, SI", unroll*srcStep)
	a.in("ADDQ $%d, DI", unroll*dstStep)
	a.in("SUBQ $%d, CX", unroll*per)
	a.in("JGE loop")
	a.at("rest")
	a.in("ADDQ $%d, CX", (unroll-1)*per)
	a.in("JLT tail")
	a.at("one")
	body("(SI)", "(DI)", 0)
	a.in("ADDQ $%d, SI", srcStep)
	a.in("ADDQ $%d, DI", dstStep)
	a.in("SUBQ $%d, CX", per)
	a.in("JGE one")
	a.at("tail")
	if tail != nil {
		s.mask(a, per)
		tail()
		a.at("done")
	}
	a.in("VZEROUPPER")
	a.in("RET")
}

func (s *isa) dstSrc(a *asm, name string) {
	a.function(name, "(dst, src unsafe.Pointer, n int)", 24)
	a.in("MOVQ dst+0(FP), DI")
	a.in("MOVQ src+8(FP), SI")
	a.in("MOVQ n+16(FP), CX")
}

// conversions emits widening and rounding of 16-bit floats, in order. Lengths are whole registers of float32.
func (s *isa) conversions(a *asm) {
	per, w := s.width/4, s.width
	s.dstSrc(a, "widenFloat16"+s.suffix)
	s.mapped(a, per, w/2, w, 4, func(src, dst string, acc int) {
		a.in("VCVTPH2PS %s, %s", src, s.r(acc))
		s.move(a, acc, dst)
	}, 1, nil)
	s.dstSrc(a, "widenBFloat16"+s.suffix)
	s.mapped(a, per, w/2, w, 4, func(src, dst string, acc int) {
		a.in("VPMOVZXWD %s, %s", src, s.r(acc))
		a.in("VPSLLD $16, %s, %s", s.r(acc), s.r(acc))
		s.move(a, acc, dst)
	}, 1, nil)
	s.dstSrc(a, "roundFloat16"+s.suffix)
	s.mapped(a, per, w, w/2, 4, func(src, dst string, acc int) {
		a.in("%s %s, %s", s.pick("VMOVDQU64", "VMOVDQU"), src, s.r(acc))
		a.in("VCVTPS2PH $0, %s, %s", s.r(acc), dst)
	}, 1, nil)
	s.dstSrc(a, "roundBFloat16"+s.suffix)
	s.broadcast32(a, const1, 0xffff0000)
	s.roundConstants(a)
	s.broadcast32(a, quietBit, 1<<22)
	s.mapped(a, per, w, w/2, 2, func(src, dst string, acc int) {
		r := s.r(acc)
		a.in("%s %s, %s", s.pick("VMOVDQU64", "VMOVDQU"), src, r)
		// Any NaN may come here: cut its payload, lest rounding carry, and make it quiet, lest it become infinite.
		if s.wide {
			a.in("VCMPPS $3, %s, %s, K3", r, r)
			a.in("VPANDD %s, %s, K3, %s", s.r(const1), r, r)
			a.in("VPORD %s, %s, K3, %s", s.r(quietBit), r, r)
		} else {
			a.in("VCMPPS $3, %s, %s, %s", r, r, s.r(9))
			a.in("VPAND %s, %s, %s", s.r(const1), r, s.r(10))
			a.in("VPOR %s, %s, %s", s.r(quietBit), s.r(10), s.r(10))
			a.in("VBLENDVPS %s, %s, %s, %s", s.r(9), s.r(10), r, r)
		}
		s.roundBFloat16(a, acc, 8)
		a.in("VPSRLD $16, %s, %s", r, r)
		if s.wide {
			a.in("VPMOVDW %s, %s", r, dst)
			return
		}
		a.in("VPACKUSDW %s, %s, %s", r, r, r)
		a.in("VPERMQ $0xd8, %s, %s", r, r)
		a.in("VMOVDQU %s, %s", s.half(acc), dst)
	}, 1, nil)
}

// Registers that no fold uses in what is loaded and stored here.
const (
	factorReg = 11
	quietBit  = 11
)

// scaling emits products and quotients by one factor.
func (s *isa) scaling(a *asm) {
	for _, f := range folds(s) {
		if f.op != "Sum" || f.t[0] == 'U' || f.t[0] == 'I' {
			continue
		}
		p, factor, bytes := "PS", "float32", 4
		if f.t == "Float64" {
			p, factor, bytes = "PD", "float64", 8
		}
		for _, op := range []string{"mul", "div"} {
			a.function(op+f.t+s.suffix, fmt.Sprintf("(dst, src unsafe.Pointer, n int, factor %s)", factor), 24+bytes)
			a.in("MOVQ dst+0(FP), DI")
			a.in("MOVQ src+8(FP), SI")
			a.in("MOVQ n+16(FP), CX")
			f.setup(s, a)
			a.in("%s factor+24(FP), %s", map[string]string{"PS": "VBROADCASTSS", "PD": "VBROADCASTSD"}[p], s.r(factorReg))
			apply := func(acc int) {
				for i := range f.regs {
					a.in("V%s%s %s, %s, %s", map[string]string{"mul": "MUL", "div": "DIV"}[op], p, s.r(factorReg), s.r(acc+i), s.r(acc+i))
				}
			}
			step := f.mem(s)
			var tail func()
			if s.wide {
				tail = func() {
					f.load(s, a, 0, s.tailOperand(a, f, "(SI)"))
					apply(0)
					s.tailStore(a, f, "(DI)")
				}
			}
			s.mapped(a, step/f.elem, step, step, f.unroll(), func(src, dst string, acc int) {
				f.load(s, a, acc, src)
				apply(acc)
				f.store(s, a, acc, dst)
			}, f.regs, tail)
		}
	}
}

// adasum emits dot products and the weighted sum of float32 and float64, in float64.
func (s *isa) adasum(a *asm) {
	for _, t := range []string{"Float32", "Float64"} {
		s.dot(a, t)
		s.combine(a, t)
	}
}

// dot adds products to 16 lanes each of a·b, a·a and b·b; n is a multiple of 16. Products of float32 are
// exact in float64, so fusing them changes nothing; those of float64 are rounded as the twin's.
func (s *isa) dot(a *asm, t string) {
	a.function("dot"+t+s.suffix, "(a, b unsafe.Pointer, n int, lanes *[3 * dotLanes]float64)", 32)
	a.in("MOVQ a+0(FP), SI")
	a.in("MOVQ b+8(FP), DX")
	a.in("MOVQ n+16(FP), CX")
	a.in("MOVQ lanes+24(FP), DI")
	parts := 128 / s.width // registers that hold 16 float64
	move := s.pick("VMOVUPD", "VMOVUPD")
	for i := range 3 * parts {
		a.in("%s %d(DI), %s", move, i*s.width, s.r(i))
	}
	elem, load := 8, move
	if t == "Float32" {
		elem, load = 4, "VCVTPS2PD"
	}
	x, y, p := s.r(12), s.r(13), s.r(14)
	a.at("loop")
	for i := range parts {
		off := i * s.width / 8 * elem
		a.in("%s %d(SI), %s", load, off, x)
		a.in("%s %d(DX), %s", load, off, y)
		for j, pair := range [][2]string{{x, y}, {x, x}, {y, y}} {
			acc := s.r(i + j*parts)
			if t == "Float32" {
				a.in("VFMADD231PD %s, %s, %s", pair[1], pair[0], acc)
				continue
			}
			a.in("VMULPD %s, %s, %s", pair[1], pair[0], p)
			a.in("VADDPD %s, %s, %s", p, acc, acc)
		}
	}
	a.in("ADDQ $%d, SI", 16*elem)
	a.in("ADDQ $%d, DX", 16*elem)
	a.in("SUBQ $16, CX")
	a.in("JGT loop")
	for i := range 3 * parts {
		a.in("%s %s, %d(DI)", move, s.r(i), i*s.width)
	}
	a.in("VZEROUPPER")
	a.in("RET")
}

// combine does whole registers of float64.
func (s *isa) combine(a *asm, t string) {
	a.function("combine"+t+s.suffix, "(dst, a, b unsafe.Pointer, n int, ca, cb float64)", 48)
	a.in("MOVQ dst+0(FP), DI")
	a.in("MOVQ a+8(FP), SI")
	a.in("MOVQ b+16(FP), DX")
	a.in("MOVQ n+24(FP), CX")
	a.in("VBROADCASTSD ca+32(FP), %s", s.r(const0))
	a.in("VBROADCASTSD cb+40(FP), %s", s.r(const1))
	per := s.width / 8
	elem, load := 8, "VMOVUPD"
	if t == "Float32" {
		elem, load = 4, "VCVTPS2PD"
	}
	a.at("loop")
	a.in("%s (SI), %s", load, s.r(0))
	a.in("%s (DX), %s", load, s.r(1))
	a.in("VMULPD %s, %s, %s", s.r(const0), s.r(0), s.r(0))
	a.in("VMULPD %s, %s, %s", s.r(const1), s.r(1), s.r(1))
	a.in("VADDPD %s, %s, %s", s.r(1), s.r(0), s.r(0))
	if t == "Float32" {
		a.in("%s %s, %s", s.pick("VCVTPD2PS", "VCVTPD2PSY"), s.r(0), s.half(0))
		a.in("VMOVUPS %s, (DI)", s.half(0))
	} else {
		a.in("VMOVUPD %s, (DI)", s.r(0))
	}
	a.in("ADDQ $%d, SI", per*elem)
	a.in("ADDQ $%d, DX", per*elem)
	a.in("ADDQ $%d, DI", per*elem)
	a.in("SUBQ $%d, CX", per)
	a.in("JGT loop")
	a.in("VZEROUPPER")
	a.in("RET")
}

// copies emits streaming copies (dst aligned to 64, n a multiple of 256) and copies that ask
// for lines ahead, to own them or to read them, never past the end (n a multiple of 64).
func (s *isa) copies(a *asm) {
	load := s.pick("VMOVDQU64", "VMOVDQU")
	s.dstSrc(a, "copyStream"+s.suffix)
	a.at("loop")
	for i := 0; i < 256; i += s.width {
		a.in("%s %d(SI), %s", load, i, s.r(i/s.width))
	}
	for i := 0; i < 256; i += s.width {
		a.in("VMOVNTDQ %s, %d(DI)", s.r(i/s.width), i)
	}
	a.in("ADDQ $256, SI")
	a.in("ADDQ $256, DI")
	a.in("SUBQ $256, CX")
	a.in("JGT loop")
	a.in("SFENCE")
	a.in("VZEROUPPER")
	a.in("RET")

	s.copyAsking(a, "copyAhead", 512, "BYTE $0x0f; BYTE $0x0d; BYTE $0x8f; BYTE $0x00; BYTE $0x02; BYTE $0x00; BYTE $0x00 // PREFETCHW 512(DI)")
	s.copyAsking(a, "copyFetch", fetch, fmt.Sprintf("PREFETCHT0 %d(SI)", fetch))
}

// copyAsking emits a copy by lines that asks for each so many bytes ahead.
func (s *isa) copyAsking(a *asm, name string, ahead int, prefetch string) {
	load := s.pick("VMOVDQU64", "VMOVDQU")
	s.dstSrc(a, name+s.suffix)
	line := func() {
		for i := 0; i < 64; i += s.width {
			a.in("%s %d(SI), %s", load, i, s.r(i/s.width))
		}
		for i := 0; i < 64; i += s.width {
			a.in("%s %s, %d(DI)", load, s.r(i/s.width), i)
		}
		a.in("ADDQ $64, SI")
		a.in("ADDQ $64, DI")
		a.in("SUBQ $64, CX")
	}
	a.in("SUBQ $%d, CX", ahead)
	a.in("JLE rest")
	a.at("loop")
	a.in("%s", prefetch)
	line()
	a.in("JGT loop")
	a.at("rest")
	a.in("ADDQ $%d, CX", ahead)
	a.in("JEQ done")
	a.at("one")
	line()
	a.in("JGT one")
	a.at("done")
	a.in("VZEROUPPER")
	a.in("RET")
}

package main

// float8 emits widening and rounding of the 8-bit floats, as the twin's narrow.go does them, a register of float32 at
// a time. Constants have registers of their own here: 4–15.
func (s *isa) float8(a *asm) {
	s.widenFloat8(a)
	for _, t := range []string{"E4M3", "E5M2"} {
		s.roundFloat8(a, t)
	}
}

// widenFloat8 goes through float16: e5m2 is its upper half; e4m3, moved to its place, is 2^-8 of the value.
func (s *isa) widenFloat8(a *asm) {
	per, w := s.width/4, s.width
	s.dstSrc(a, "widenE5M2"+s.suffix)
	s.mapped(a, per, w/4, w, 2, func(src, dst string, acc int) {
		a.in("VPMOVZXBW %s, %s", src, s.half(acc))
		a.in("VPSLLW $8, %s, %s", s.half(acc), s.half(acc))
		a.in("VCVTPH2PS %s, %s", s.half(acc), s.r(acc))
		s.move(a, acc, dst)
	}, 1, nil)

	const scale, place, top, nan, magnitude = 12, 10, 14, 15, 11
	s.dstSrc(a, "widenE4M3"+s.suffix)
	s.broadcast32(a, scale, 0x43800000) // 256
	s.broadcast32(a, place, 0xbfffbfff)
	s.broadcast32(a, top, 0x43f00000) // 480: what NaN comes out as
	s.broadcast32(a, nan, 0x43f00000^0x7fc00000)
	s.broadcast32(a, magnitude, 0x7fffffff)
	and := s.bitwise("VPAND")
	s.mapped(a, per, w/4, w, 2, func(src, dst string, acc int) {
		h, r := s.half(acc), s.r(acc)
		a.in("VPMOVSXBW %s, %s", src, h)
		a.in("VPSLLW $7, %s, %s", h, h) // s s eeee mmm 0000000: the second sign is to go
		a.in("%s %s, %s, %s", and, s.half(place), h, h)
		a.in("VCVTPH2PS %s, %s", h, r)
		a.in("VMULPS %s, %s, %s", s.r(scale), r, r)
		a.in("%s %s, %s, %s", and, s.r(magnitude), r, s.r(8))
		if s.wide {
			a.in("VPCMPEQD %s, %s, K2", s.r(top), s.r(8))
			a.in("VPXORD %s, %s, K2, %s", s.r(nan), r, r)
		} else {
			a.in("VPCMPEQD %s, %s, %s", s.r(top), s.r(8), s.r(8))
			a.in("VPAND %s, %s, %s", s.r(nan), s.r(8), s.r(8))
			a.in("VPXOR %s, %s, %s", s.r(8), r, r)
		}
		s.move(a, acc, dst)
	}, 1, nil)
}

// roundFloat8 computes what a normal, a small and a too large number become, and picks.
func (s *isa) roundFloat8(a *asm, t string) {
	const m, normal, mask, other = 8, 9, 4, 10 // temporaries
	const magnitude, one, bias, small, magic, low = 15, 14, 13, 12, 11, 7
	const large, largeValue, nan, nanValue = 6, 5, 3, 2
	drop := 20 // bits below those kept
	s.dstSrc(a, "round"+t+s.suffix)
	s.broadcast32(a, magnitude, 0x7fffffff)
	s.broadcast32(a, one, 1)
	s.broadcast32(a, low, 0xff)
	// bias is one less than half of the unit kept, less the difference of the exponents' zero points.
	if t == "E4M3" {
		s.broadcast32(a, bias, 0xc407ffff)
		s.broadcast32(a, small, 0x3c800000) // 2^-6
		s.broadcast32(a, magic, 0x46c00000) // 1.5*2^14
		s.broadcast32(a, large, 0x43e80000) // 464
		s.broadcast32(a, largeValue, 0x7f)
	} else {
		drop = 21
		s.broadcast32(a, bias, 0xc80fffff)
		s.broadcast32(a, small, 0x38800000) // 2^-14
		s.broadcast32(a, magic, 0x43400000) // 1.5*2^7
		s.broadcast32(a, large, 0x476fffff) // just below 61440
		s.broadcast32(a, largeValue, 0x7c)
		s.broadcast32(a, nan, 0x7f800000)
		s.broadcast32(a, nanValue, 0x7e)
	}
	and, or, xor := s.bitwise("VPAND"), s.bitwise("VPOR"), s.bitwise("VPXOR")
	// pick takes value where register l is greater than register r.
	pick := func(l, r, value int) {
		if s.wide {
			a.in("VPCMPGTD %s, %s, K2", s.r(r), s.r(l))
			a.in("VPBLENDMD %s, %s, K2, %s", s.r(value), s.r(normal), s.r(normal))
			return
		}
		a.in("VPCMPGTD %s, %s, %s", s.r(r), s.r(l), s.r(mask))
		a.in("VPBLENDVB %s, %s, %s, %s", s.r(mask), s.r(value), s.r(normal), s.r(normal))
	}
	per, w := s.width/4, s.width
	s.mapped(a, per, w, w/4, 2, func(src, dst string, acc int) {
		r := s.r(acc)
		a.in("%s %s, %s", s.pick("VMOVDQU64", "VMOVDQU"), src, r)
		a.in("%s %s, %s, %s", and, s.r(magnitude), r, s.r(m))
		a.in("%s %s, %s, %s", xor, s.r(m), r, r)
		a.in("VPSRLD $24, %s, %s", r, r)
		a.in("VPSRLD $%d, %s, %s", drop, s.r(m), s.r(normal))
		a.in("%s %s, %s, %s", and, s.r(one), s.r(normal), s.r(normal))
		a.in("VPADDD %s, %s, %s", s.r(bias), s.r(normal), s.r(normal))
		a.in("VPADDD %s, %s, %s", s.r(m), s.r(normal), s.r(normal))
		a.in("VPSRLD $%d, %s, %s", drop, s.r(normal), s.r(normal))
		a.in("VADDPS %s, %s, %s", s.r(magic), s.r(m), s.r(other))
		a.in("%s %s, %s, %s", and, s.r(low), s.r(other), s.r(other))
		pick(small, m, other)
		pick(m, large, largeValue)
		if t == "E5M2" {
			pick(m, nan, nanValue)
		}
		a.in("%s %s, %s, %s", or, s.r(normal), r, r)
		if s.wide {
			a.in("VPMOVDB %s, %s", r, dst)
			return
		}
		x := s.half(acc)
		a.in("VPACKUSDW %s, %s, %s", r, r, r)
		a.in("VPERMQ $0x08, %s, %s", r, r)
		a.in("VPACKUSWB %s, %s, %s", x, x, x)
		a.in("VMOVQ %s, %s", x, dst)
	}, 1, nil)
}

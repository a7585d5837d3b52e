package main

func neon(a *asm) {
	for _, f := range armFolds() {
		f.pair(a)
		f.many(a)
	}
	armConversions(a)
	armScaling(a)
	for _, t := range []string{"Float32", "Float64"} {
		armDot(a, t)
		armCombine(a, t)
	}
	armCopyAhead(a)
}

func armDstSrc(a *asm, name string) {
	a.function(name, "(dst, src unsafe.Pointer, n int)", 24)
	a.in("MOVD dst+0(FP), R0")
	a.in("MOVD src+8(FP), R1")
	a.in("MOVD n+16(FP), R3")
}

// armConversions do 8 elements a step: one register of 16-bit floats, two of float32.
func armConversions(a *asm) {
	for _, t := range []string{"Float16", "BFloat16"} {
		armDstSrc(a, "widen"+t+"NEON")
		armLoops(a, 8, 2, func(u int) {
			a.in("VLD1.P %d(R1), %s", 16*u, list(raw0, u))
			for i := range u {
				for j, high := range []bool{false, true} {
					if t == "Float16" {
						a.fcvtl(high, 0, 2*i+j, raw0+i)
					} else {
						a.shll16(high, 2*i+j, raw0+i)
					}
				}
			}
			a.in("VST1.P %s, %d(R0)", list(0, 2*u), 32*u)
		})
		armDstSrc(a, "round"+t+"NEON")
		if t == "BFloat16" {
			a.konst(konst0, 1<<22, "S4")
			a.konst(konst0+1, 0xffff0000, "S4")
			a.konst(konst0+2, 1, "S4")
			a.konst(konst0+3, 0x7fff, "S4")
		}
		armLoops(a, 8, 2, func(u int) {
			a.in("VLD1.P %d(R1), %s", 32*u, list(0, 2*u))
			for i := range 2 * u {
				if t == "Float16" {
					a.fcvtn(i%2 == 1, 0, raw0+i/2, i)
					continue
				}
				// Any NaN may come here: cut its payload and make it quiet.
				a.three(fcmeq, tmp0, i, i)
				a.three(and, tmp0+1, i, konst0+1)
				a.three(orr, tmp0+1, tmp0+1, konst0)
				a.three(bif, i, tmp0+1, tmp0)
				armRoundBFloat16(a, i)
				a.shrn16(i%2 == 1, raw0+i/2, i)
			}
			a.in("VST1.P %s, %d(R0)", list(raw0, u), 16*u)
		})
	}
}

func armScaling(a *asm) {
	for _, f := range armFolds() {
		if f.op != "Sum" || f.t[0] == 'U' || f.t[0] == 'I' {
			continue
		}
		const factor = 28 // a register that no fold uses
		wide := f.t == "Float64"
		for _, op := range []string{"mul", "div"} {
			ins := map[string]same{"mul": fmul, "div": fdiv}[op]
			if wide {
				ins = double(ins)
				a.function(op+f.t+"NEON", "(dst, src unsafe.Pointer, n int, factor float64)", 32)
				a.in("FMOVD factor+24(FP), F%d", factor)
				a.in("VDUP V%d.D[0], V%d.D2", factor, factor)
			} else {
				a.function(op+f.t+"NEON", "(dst, src unsafe.Pointer, n int, factor float32)", 28)
				a.in("FMOVS factor+24(FP), F%d", factor)
				a.in("VDUP V%d.S[0], V%d.S4", factor, factor)
			}
			a.in("MOVD dst+0(FP), R0")
			a.in("MOVD src+8(FP), R1")
			a.in("MOVD n+16(FP), R3")
			f.setup(a)
			f.loops(a, 16/f.elem, func(u int) {
				a.in("VLD1.P %d(R1), %s", 16*u, list(f.first(), u))
				f.loadAll(a, u)
				for i := range u * f.regs {
					a.three(ins, i, i, factor)
				}
				out := f.storeAll(a, u)
				a.in("VST1.P %s, %d(R0)", list(out, u), 16*u)
			})
		}
	}
}

// armDot keeps 16 lanes in eight registers for each of the three sums, V0–V23; n is a multiple of 16.
func armDot(a *asm, t string) {
	a.function("dot"+t+"NEON", "(a, b unsafe.Pointer, n int, lanes *[3 * dotLanes]float64)", 32)
	a.in("MOVD a+0(FP), R0")
	a.in("MOVD b+8(FP), R1")
	a.in("MOVD n+16(FP), R3")
	a.in("MOVD lanes+24(FP), R4")
	a.in("MOVD R4, R5")
	for i := 0; i < 24; i += 4 {
		a.in("VLD1.P 64(R4), %s", list(i, 4))
	}
	products := func(lane, x, y int) {
		for j, pair := range [][2]int{{x, y}, {x, x}, {y, y}} {
			acc := lane + 8*j
			if t == "Float32" { // exact products: fusing changes nothing
				a.three(double(fmla), acc, pair[0], pair[1])
				continue
			}
			a.three(double(fmul), 30, pair[0], pair[1])
			a.three(double(fadd), acc, acc, 30)
		}
	}
	a.at("loop")
	for i := range 4 {
		if t == "Float32" {
			a.in("VLD1.P 16(R0), %s", list(24, 1))
			a.in("VLD1.P 16(R1), %s", list(25, 1))
			for j, high := range []bool{false, true} {
				a.fcvtl(high, 1, 26+j, 24)
				a.fcvtl(high, 1, 28+j, 25)
			}
		} else {
			a.in("VLD1.P 32(R0), %s", list(26, 2))
			a.in("VLD1.P 32(R1), %s", list(28, 2))
		}
		products(2*i, 26, 28)
		products(2*i+1, 27, 29)
	}
	a.in("SUBS $16, R3, R3")
	a.in("BGT loop")
	for i := 0; i < 24; i += 4 {
		a.in("VST1.P %s, 64(R5)", list(i, 4))
	}
	a.in("RET")
}

// armCombine does four elements a step.
func armCombine(a *asm, t string) {
	a.function("combine"+t+"NEON", "(dst, a, b unsafe.Pointer, n int, ca, cb float64)", 48)
	a.in("MOVD dst+0(FP), R0")
	a.in("MOVD a+8(FP), R1")
	a.in("MOVD b+16(FP), R2")
	a.in("MOVD n+24(FP), R3")
	for i, arg := range []string{"ca+32", "cb+40"} {
		a.in("FMOVD %s(FP), F%d", arg, konst0+i)
		a.in("VDUP V%d.D[0], V%d.D2", konst0+i, konst0+i)
	}
	load := func(reg, at int) {
		if t == "Float64" {
			a.in("VLD1.P 32(R%d), %s", reg, list(at, 2))
			return
		}
		a.in("VLD1.P 16(R%d), %s", reg, list(raw0, 1))
		a.fcvtl(false, 1, at, raw0)
		a.fcvtl(true, 1, at+1, raw0)
	}
	a.at("loop")
	load(1, 0)
	load(2, 2)
	for i := range 2 {
		a.three(double(fmul), i, i, konst0)
		a.three(double(fmul), 2+i, 2+i, konst0+1)
		a.three(double(fadd), i, i, 2+i)
	}
	if t == "Float64" {
		a.in("VST1.P %s, 32(R0)", list(0, 2))
	} else {
		a.fcvtn(false, 1, raw0, 0)
		a.fcvtn(true, 1, raw0, 1)
		a.in("VST1.P %s, 16(R0)", list(raw0, 1))
	}
	a.in("SUBS $4, R3, R3")
	a.in("BGT loop")
	a.in("RET")
}

// armCopyAhead asks for ownership of lines 512 bytes ahead, never past the end; n is a multiple of 64.
func armCopyAhead(a *asm) {
	armDstSrc(a, "copyAheadNEON")
	line := func() {
		a.in("VLD1.P 64(R1), %s", list(0, 4))
		a.in("VST1.P %s, 64(R0)", list(0, 4))
	}
	a.in("SUBS $512, R3, R3")
	a.in("BLE rest")
	a.at("loop")
	a.in("PRFM 512(R0), PSTL1KEEP")
	line()
	a.in("SUBS $64, R3, R3")
	a.in("BGT loop")
	a.at("rest")
	a.in("ADDS $512, R3, R3")
	a.in("BEQ done")
	a.at("one")
	line()
	a.in("SUBS $64, R3, R3")
	a.in("BGT one")
	a.at("done")
	a.in("RET")
}

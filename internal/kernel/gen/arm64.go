package main

func neon(*asm)            {}
func neonChoosers() string { return "" }

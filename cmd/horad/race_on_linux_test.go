//go:build race

package main

// raced: this test and the programs that it starts are built with the race detector.
const raced = true

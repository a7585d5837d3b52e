//go:build purego || (!amd64 && !arm64)

package kernel

import (
	"math"
	"unsafe"

	"hora/tensor"
)

// Without vector code every hook does none of its elements, and the twin does them all.

func detect() Level { return Pure }

func reducePair(Level, unsafe.Pointer, unsafe.Pointer, unsafe.Pointer, int, tensor.DType, tensor.Op) int {
	return 0
}

func reduceMany(Level, unsafe.Pointer, []unsafe.Pointer, int, int, tensor.DType, tensor.Op) int {
	return 0
}

func scaleVector(Level, unsafe.Pointer, unsafe.Pointer, int, tensor.DType, float64, bool) int {
	return 0
}

func toFloat32Vector(Level, *float32, unsafe.Pointer, int, tensor.DType) int   { return 0 }
func fromFloat32Vector(Level, unsafe.Pointer, *float32, int, tensor.DType) int { return 0 }

func dotVector(Level, unsafe.Pointer, unsafe.Pointer, int, tensor.DType, *[3 * dotLanes]float64) int {
	return 0
}

func combineVector(Level, unsafe.Pointer, unsafe.Pointer, unsafe.Pointer, int, tensor.DType, float64, float64) int {
	return 0
}

// stringLeast says that no string instruction copies here.
const stringLeast = math.MaxInt

func copyStreamVector(Level, unsafe.Pointer, unsafe.Pointer, int) int { return 0 }
func copyAheadVector(Level, unsafe.Pointer, unsafe.Pointer, int) int  { return 0 }
func copyFetchVector(Level, unsafe.Pointer, unsafe.Pointer, int) int  { return 0 }
func copyTakeVector(Level, unsafe.Pointer, unsafe.Pointer, int) int   { return 0 }

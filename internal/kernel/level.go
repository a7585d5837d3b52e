package kernel

import (
	"fmt"
	"strings"
)

// Level is a set of vector instructions. Its methods are the package's functions done with
// those instructions; a Level not in Levels must not be used. Tests compare levels; programs call the package's
// functions.
type Level uint8

// The levels. Pure is plain Go and the reference for the others.
const (
	Pure Level = iota
	NEON
	AVX2
	AVX512
	levelEnd
)

var levelNames = [levelEnd]string{"pure", "neon", "avx2", "avx512"}

// String is the level's name in lower case.
func (l Level) String() string {
	if l >= levelEnd {
		return fmt.Sprintf("level(%d)", uint8(l))
	}
	return levelNames[l]
}

// best is found once, when the program starts, and never changes.
var best = detect()

// Best is the level that the package's functions use.
func Best() Level { return best }

// Levels lists what this processor and this build can run, Pure first.
func Levels() []Level {
	switch best {
	case AVX512:
		return []Level{Pure, AVX2, AVX512}
	case Pure:
		return []Level{Pure}
	default:
		return []Level{Pure, best}
	}
}

// Features names the levels found and used, the best first: "avx512 avx2 pure".
func Features() string {
	levels := Levels()
	names := make([]string, 0, len(levels))
	for i := len(levels) - 1; i >= 0; i-- {
		names = append(names, levels[i].String())
	}
	return strings.Join(names, " ")
}

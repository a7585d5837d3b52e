package bench

import "slices"

func median(x []float64) float64 { return quantile(x, 0.5) }

// quantile lies between the two values nearest to it, in proportion; 0 of nothing.
func quantile(x []float64, part float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	at := part * float64(len(x)-1)
	below := int(at)
	above := min(below+1, len(x)-1)
	return x[below] + (at-float64(below))*(x[above]-x[below])
}

package demo

import "math"

// SoftmaxLoss is the cross-entropy of the logits against the labels, summed over the
// rows. It writes the gradient by the logits, each divided by batch, the number of
// images of the whole step on all ranks: the ranks' gradients then only have to be
// added up.
func SoftmaxLoss(byLogits, logits []float32, labels []uint8, batch int) (sum float64) {
	if len(labels) == 0 {
		return 0
	}
	classes := len(logits) / len(labels)
	for r, label := range labels {
		row, grad := logits[r*classes:(r+1)*classes], byLogits[r*classes:(r+1)*classes]
		top := row[0]
		for _, v := range row {
			top = max(top, v)
		}
		var total float64
		for j, v := range row {
			e := math.Exp(float64(v - top))
			grad[j] = float32(e)
			total += e
		}
		sum += math.Log(total) - float64(row[label]-top)
		for j := range grad {
			p := float64(grad[j]) / total
			if j == int(label) {
				p--
			}
			grad[j] = float32(p / float64(batch))
		}
	}
	return sum
}

// Correct counts the rows whose largest logit is the label's.
func Correct(logits []float32, labels []uint8) (n int) {
	if len(labels) == 0 {
		return 0
	}
	classes := len(logits) / len(labels)
	for r, label := range labels {
		row := logits[r*classes : (r+1)*classes]
		best := 0
		for j, v := range row {
			if v > row[best] {
				best = j
			}
		}
		if best == int(label) {
			n++
		}
	}
	return n
}

package demo

import "math/rand/v2"

// Order is the order in which the images of an epoch are visited. It depends on seed
// and epoch alone, never on the number of ranks: any world trains on the same batches.
func Order(seed uint64, epoch, images int) []int {
	return rand.New(rand.NewPCG(seed, uint64(epoch)+1)).Perm(images)
}

// Share is the part of a batch of n images that rank takes: contiguous, in rank order,
// as even as can be.
func Share(n, rank, size int) (from, to int) {
	return n * rank / size, n * (rank + 1) / size
}

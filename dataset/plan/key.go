package plan

import "math/bits"

// What follows is frozen: golden vectors in plan_test.go hold it, and State.Version
// would have to change with it, since every order that was ever saved hangs on it.

// mix is a 64-bit hash whose every output bit depends on every input bit.
func mix(x uint64) uint64 {
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
	x = (x ^ (x >> 27)) * 0x94D049BB133111EB
	return x ^ (x >> 31)
}

// key derives the key of one permutation from the run's seed and where it stands.
func key(seed uint64, parts ...uint64) uint64 {
	k := mix(seed + golden)
	for _, p := range parts {
		k = mix(k ^ mix(p+golden))
	}
	return k
}

const golden = 0x9E3779B97F4A7C15

// wide is from where on a draw takes 64 random bits: below it 32 bits are unequal by
// less than one in four thousand.
const wide = 1 << 20

// Permute fills p with a permutation of 0…len(p)-1 that depends on the key alone.
// A number below len(p) costs two or three nanoseconds.
func Permute(p []uint32, key uint64) { permute(p, key, 0) }

// permute is Permute of the numbers from base on.
func permute(p []uint32, key uint64, base uint32) {
	n := min(len(p), wide)
	for i := 0; i < n; i += 2 { // one 64-bit number is two draws
		key += golden
		x := mix(key)
		put(p, i, base, uint32(x>>32*uint64(i+1)>>32))
		if i+1 < n {
			put(p, i+1, base, uint32(x&0xFFFFFFFF*uint64(i+2)>>32))
		}
	}
	for i := n; i < len(p); i++ {
		key += golden
		j, _ := bits.Mul64(mix(key), uint64(i+1))
		put(p, i, base, uint32(j))
	}
}

// put is a step of the inside-out shuffle: i goes to place j, what was there to i.
func put(p []uint32, i int, base, j uint32) {
	p[i] = p[j]
	p[j] = base + uint32(i)
}

package plan

import (
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"strconv"
)

// MixWindow is how many rows of a mixture lie in one of its windows: in each, members
// have as many rows as their weights say, rounded so that no window's rounding is ever
// added to another's.
const MixWindow = 1000

// MaxMembers bounds the members of a mixture.
const MaxMembers = 256

// Mix is the order of a mixture's members: an endless sequence that says for each row
// which member it is taken from. It is a function of the weights alone, and may be read
// by several at once.
type Mix struct {
	sums []uint64 // the weights of the members before i; the last is the whole
}

// maxWhole bounds the sum of the weights as whole numbers.
const maxWhole = 1 << 40

// NewMix makes the order of members with such weights: decimal numbers, of which 0 lets
// a member rest.
func NewMix(weights []string) (*Mix, error) {
	if len(weights) == 0 || len(weights) > MaxMembers {
		return nil, fmt.Errorf("%d members; a mixture has 1 to %d", len(weights), MaxMembers)
	}
	parts, err := exactly(weights)
	if err != nil {
		return nil, err
	}
	m := &Mix{sums: make([]uint64, len(parts)+1)}
	for i, p := range parts {
		m.sums[i+1] = m.sums[i] + p
	}
	for i, p := range parts {
		if p > 0 && p*MixWindow < m.sums[len(parts)] {
			return nil, fmt.Errorf("the weight %s is less than one in %d of the whole; give it more, or 0", weights[i], MixWindow)
		}
	}
	return m, nil
}

// exactly makes whole numbers of weights, in the same proportions.
func exactly(weights []string) ([]uint64, error) {
	exact := make([]*big.Rat, len(weights))
	factor, sum := big.NewInt(1), new(big.Rat)
	for i, w := range weights {
		v, err := strconv.ParseFloat(w, 64)
		if err != nil || len(w) > 32 || v != 0 && (v < 1e-9 || v > 1e9) {
			return nil, fmt.Errorf("the weight %q; give a positive number, or 0 for a member that rests", w)
		}
		exact[i] = new(big.Rat)
		if v != 0 {
			if _, ok := exact[i].SetString(w); !ok {
				return nil, fmt.Errorf("the weight %q is no decimal number", w)
			}
		}
		d := exact[i].Denom()
		common := new(big.Int).GCD(nil, nil, factor, d)
		factor.Div(factor.Mul(factor, d), common)
		sum.Add(sum, exact[i])
	}
	if sum.Sign() == 0 {
		return nil, errors.New("all weights are 0; give one member more")
	}
	scale := new(big.Rat).SetInt(factor)
	all := new(big.Rat).Mul(sum, scale)
	if all.Cmp(new(big.Rat).SetInt64(maxWhole)) > 0 {
		scale.Quo(new(big.Rat).SetInt64(maxWhole), sum) // and round
	}
	parts, divisor := make([]uint64, len(weights)), new(big.Int)
	half := big.NewRat(1, 2)
	for i, r := range exact {
		r.Mul(r, scale).Add(r, half)
		n := new(big.Int).Div(r.Num(), r.Denom())
		parts[i] = n.Uint64()
		divisor.GCD(nil, nil, divisor, n)
	}
	for i := range parts {
		parts[i] /= divisor.Uint64()
	}
	return parts, nil
}

// Members is how many there are.
func (m *Mix) Members() int { return len(m.sums) - 1 }

// Before fills counts with how many of the first n rows each member has.
func (m *Mix) Before(n int64, counts []int64) {
	var due [MaxMembers]int64
	k := m.Members()
	window, rest := n/MixWindow, n%MixWindow
	var last, lastNext int64
	for i := range k {
		end, next := m.until(window, i+1), m.until(window+1, i+1)
		counts[i] = end - last
		due[i] = next - lastNext - counts[i]
		last, lastNext = end, next
	}
	// The rows of a window go to the member that is furthest behind, of equals the first:
	// member i's row j comes at (2j+1)/due[i]. What comes until shortly before the end is
	// counted, and the rest picked one by one.
	var taken [MaxMembers]int64
	sum := int64(0)
	if near := rest - int64(k); near > 0 {
		for i := range k {
			taken[i] = min((2*near*due[i]+MixWindow)/(2*MixWindow), due[i])
			sum += taken[i]
		}
	}
	for ; sum < rest; sum++ {
		first := -1
		for i := range k {
			if taken[i] < due[i] && (first < 0 || (2*taken[i]+1)*due[first] < (2*taken[first]+1)*due[i]) {
				first = i
			}
		}
		taken[first]++
	}
	for i := range k {
		counts[i] += taken[i]
	}
}

// until is how many rows of so many windows the members before i have together.
func (m *Mix) until(windows int64, i int) int64 {
	high, low := bits.Mul64(uint64(windows)*MixWindow, m.sums[i])
	n, _ := bits.Div64(high, low, m.sums[len(m.sums)-1]) // at most the rows: it fits
	return int64(n)
}

// Longest is after how many rows of the mixture a member with weight has had so many of
// its own; 0 for one that rests.
func (m *Mix) Longest(member int, rows int64) int64 {
	w := m.sums[member+1] - m.sums[member]
	if w == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(rows), m.sums[len(m.sums)-1])
	if high >= w {
		return 1 << 62
	}
	n, _ := bits.Div64(high, low, w)
	return int64(min(n, 1<<62))
}

// Cut says which of a step's n rows of a member a rank takes, where the members before
// it have so many. All rows of the step are dealt to the ranks one by one, so both the
// rows of a step and those of each member differ by at most one between ranks.
func Cut(before, n int64, rank, size int) (begin, end int64) {
	first := func(rank int) int64 { return below(before+n, rank, size) - below(before, rank, size) }
	return first(rank), first(rank + 1)
}

// below is how many of the first n rows go to ranks before one.
func below(n int64, rank, size int) int64 {
	return n/int64(size)*int64(rank) + min(n%int64(size), int64(rank))
}

// MemberSeed is the seed of a mixture's member.
func MemberSeed(seed uint64, member int) uint64 { return key(seed, 0, memberKey, uint64(member)) }

// MixKey is the key of the order of a rank's rows in the step that begins with a row of
// the mixture.
func MixKey(seed uint64, begin int64, rank int) uint64 {
	return key(seed, 0, mixKey, uint64(begin), uint64(rank))
}

const (
	memberKey = stepKey + 1
	mixKey    = stepKey + 2
)

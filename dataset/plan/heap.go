package plan

// laneBits hold a lane's number; MaxLanes fits into them.
const laneBits = 10

// shortest is a heap of lanes: the one with fewest rows is on top, of equals the first. Each is one number, its rows
// above its lane, so that one comparison orders both.
type shortest []uint64

func newHeap(lanes int) shortest {
	h := make(shortest, lanes)
	for i := range h {
		h[i] = uint64(i)
	}
	return h
}

// lane returns the lane with fewest rows.
func (h shortest) lane() int { return int(h[0] & (1<<laneBits - 1)) }

// add gives that lane rows.
func (h shortest) add(rows int) {
	v, i := h[0]+uint64(rows)<<laneBits, 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[child] > v {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = v
}

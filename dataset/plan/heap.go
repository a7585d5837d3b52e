package plan

// shortest is a heap of lanes: the one with fewest rows is on top, of equals the first.
type shortest struct {
	rows []int64 // by lane
	heap []int32
}

func newHeap(lanes int) *shortest {
	h := &shortest{rows: make([]int64, lanes), heap: make([]int32, lanes)}
	for i := range h.heap {
		h.heap[i] = int32(i)
	}
	return h
}

func (h *shortest) lane() int32 { return h.heap[0] }

func (h *shortest) less(a, b int32) bool {
	return h.rows[a] < h.rows[b] || h.rows[a] == h.rows[b] && a < b
}

// add gives the top lane rows.
func (h *shortest) add(rows int64) {
	h.rows[h.heap[0]] += rows
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.heap); child++ {
			if h.less(h.heap[child], h.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.heap[i], h.heap[least] = h.heap[least], h.heap[i]
		i = least
	}
}

package collective

import (
	"fmt"

	"hora/tensor"
)

// check finds what is wrong with a call by itself; what the other ranks asked for is
// the fingerprint's business.
func (c *Comm) check(call *Call) error {
	n := c.mesh.Size()
	k := call.Kind
	switch {
	case k == 0 || k >= kindEnd:
		return fmt.Errorf("run %s: there is no such operation", k)
	case k == Barrier:
		return nil
	case !call.Type.Valid():
		return fmt.Errorf("run %s: %s is not an element type", k, call.Type)
	case k.Rooted() && (call.Root < 0 || call.Root >= n):
		return fmt.Errorf("run %s: root %d is not a rank of this group of %d", k, call.Root, n)
	case (k == SendTo || k == RecvFrom) && (call.Peer < 0 || call.Peer >= n || call.Peer == c.mesh.Rank()):
		return fmt.Errorf("run %s: peer %d is not another rank of this group of %d", k, call.Peer, n)
	}
	if err := views(call); err != nil {
		return err
	}
	if k.Reduces() {
		if err := tensor.Check(call.Op, call.Type); err != nil {
			return fmt.Errorf("run %s: %w", k, err)
		}
		if call.Op == tensor.Adasum && k != Allreduce {
			return fmt.Errorf("run %s: adasum is an allreduce; reduce with sum or average instead", k)
		}
	}
	if err := checkStarts(call); err != nil {
		return err
	}
	return c.checkCounts(call, n)
}

func checkStarts(call *Call) error {
	for i, at := range call.Starts {
		if i == 0 && at != 0 || at < 0 || at > call.Send.Count || i > 0 && at < call.Starts[i-1] {
			return fmt.Errorf("run %s: tensor %d starts at element %d of %d; starts ascend from 0", call.Kind, i, at, call.Send.Count)
		}
	}
	return nil
}

func views(call *Call) error {
	for _, v := range [2]*tensor.View{&call.Send, &call.Recv} {
		switch {
		case v.Count < 0:
			return fmt.Errorf("run %s: a view of %d elements", call.Kind, v.Count)
		case v.Count > 0 && v.Type != call.Type:
			return fmt.Errorf("run %s of %s: a view holds %s", call.Kind, call.Type, v.Type)
		case v.Count > 0 && v.Ptr == nil:
			return fmt.Errorf("run %s: a view of %d elements has no memory", call.Kind, v.Count)
		}
	}
	return nil
}

// checkCounts holds the lengths of the views to what the operation says of them.
func (c *Comm) checkCounts(call *Call, n int) error {
	me := c.mesh.Rank()
	root := call.Root == me
	s, r := call.Send.Count, call.Recv.Count
	switch call.Kind {
	case Allreduce:
		return want(call, "recv", r, s)
	case Reduce:
		if root {
			return want(call, "recv", r, s)
		}
	case Broadcast:
		if root && s > 0 && r > 0 {
			return want(call, "recv", r, s)
		}
	case Allgather:
		return blocks(call, "recv", call.RecvCounts, n, me, r, s)
	case ReduceScatter:
		return blocks(call, "send", call.RecvCounts, n, me, s, r)
	case Gather:
		if root {
			return blocks(call, "recv", call.RecvCounts, n, me, r, s)
		}
	case Scatter:
		if root {
			return blocks(call, "send", call.SendCounts, n, me, s, r)
		}
	case Alltoall:
		return c.checkAlltoall(call, n)
	}
	return nil
}

func (c *Comm) checkAlltoall(call *Call, n int) error {
	me := c.mesh.Rank()
	if (call.SendCounts == nil) != (call.RecvCounts == nil) {
		return fmt.Errorf("run alltoall: give counts for both send and recv, or for neither")
	}
	if call.SendCounts == nil {
		if call.Send.Count%n != 0 {
			return fmt.Errorf("run alltoall: %d elements do not divide among %d ranks; give counts", call.Send.Count, n)
		}
		return want(call, "recv", call.Recv.Count, call.Send.Count)
	}
	if len(call.RecvCounts) != n {
		return fmt.Errorf("run alltoall: %d recv counts for %d ranks", len(call.RecvCounts), n)
	}
	if err := blocks(call, "send", call.SendCounts, n, me, call.Send.Count, call.RecvCounts[me]); err != nil {
		return err
	}
	return blocks(call, "recv", call.RecvCounts, n, me, call.Recv.Count, call.SendCounts[me])
}

func want(call *Call, name string, have, want int) error {
	if have != want {
		return fmt.Errorf("run %s: %s holds %d elements, %d are needed", call.Kind, name, have, want)
	}
	return nil
}

// blocks checks that whole is the sum of counts (or n times mine) and that the block
// of rank me has mine elements.
func blocks(call *Call, name string, counts []int, n, me, whole, mine int) error {
	if counts == nil {
		return want(call, name, whole, n*mine)
	}
	if len(counts) != n {
		return fmt.Errorf("run %s: %d counts for %d ranks", call.Kind, len(counts), n)
	}
	sum := 0
	for r, k := range counts {
		if k < 0 {
			return fmt.Errorf("run %s: count %d for rank %d", call.Kind, k, r)
		}
		sum += k
	}
	if counts[me] != mine {
		return fmt.Errorf("run %s: my block holds %d elements, its count says %d", call.Kind, mine, counts[me])
	}
	return want(call, name, whole, sum)
}

package collective

// plannedCall is a call that was checked, and the plan for it.
type plannedCall struct {
	what                 uint64 // kind, types and operator; 0: nothing is here
	sendCount, recvCount int
	plan                 plan
}

const plannedCalls = 16 // a power of two

// prepare checks a call and plans it, or remembers: loops make the same calls again and
// again, and both together cost as much as a small sum.
func (c *Comm) prepare(call *Call) error {
	o := &c.op
	what := call.plain()
	e := &c.planned[uint(call.Send.Count)%plannedCalls]
	if what != 0 && e.what == what && e.sendCount == call.Send.Count && e.recvCount == call.Recv.Count &&
		call.Send.Ptr != nil && call.Recv.Ptr != nil {
		o.plan = e.plan
		return nil
	}
	if err := c.check(call); err != nil {
		return err
	}
	c.planFor(call, &o.plan)
	if what != 0 {
		e.what, e.sendCount, e.recvCount, e.plan = what, call.Send.Count, call.Recv.Count, o.plan
	}
	return nil
}

// plain packs what is asked, but for memory and counts; 0 where that is not all.
func (call *Call) plain() uint64 {
	if call.SendCounts != nil || call.RecvCounts != nil || call.Starts != nil || !plainFactor(call.Pre) ||
		!plainFactor(call.Post) ||
		call.Root|call.Peer != 0 || call.Kind == Barrier {
		return 0
	}
	return uint64(call.Kind) | uint64(call.Type)<<8 | uint64(call.Op)<<16 |
		uint64(call.Send.Type)<<24 | uint64(call.Recv.Type)<<32
}

func plainFactor(f float64) bool { return f == 0 || f == 1 }

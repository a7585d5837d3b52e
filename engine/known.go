package engine

import "hora/collective"

// known remembers requests that were checked, with their fingerprints: a training loop asks
// the same again and again, of the same memory, and need not pay for both each time, which
// is a tenth of a small operation. It belongs to the turn's holder and keeps no memory of a
// caller alive.
type known [knownRequests]knownRequest

const knownRequests = 32 // a power of two

type knownRequest struct {
	what                 uint64 // kind, types and operator; 0: nothing is here
	send, recv           uintptr
	sendCount, recvCount int
	name                 []byte
	print                fingerprint
	step                 uint64 // mark of the planned step that it was found to be; see plan.mark
}

// of finds r, nil if it must be checked and hashed. Requests with lists, factors or a root,
// and pairs', always must; barriers cost too little.
func (k *known) of(r *Request) *knownRequest {
	e := k.place(r)
	if e.what == r.plain() && e.send == uintptr(r.Send.Ptr) && e.recv == uintptr(r.Recv.Ptr) &&
		e.sendCount == r.Send.Count && e.recvCount == r.Recv.Count && string(e.name) == r.Name && e.what != 0 {
		return e
	}
	return nil
}

// note remembers r, which check has passed.
func (k *known) note(r *Request, p fingerprint) {
	what := r.plain()
	if what == 0 {
		return
	}
	e := k.place(r)
	e.what, e.print, e.step, e.name = what, p, 0, append(e.name[:0], r.Name...)
	e.send, e.recv, e.sendCount, e.recvCount = uintptr(r.Send.Ptr), uintptr(r.Recv.Ptr), r.Send.Count, r.Recv.Count
}

func (k *known) place(r *Request) *knownRequest {
	return &k[(uintptr(r.Send.Ptr)>>6^uintptr(r.Send.Ptr)>>12)%knownRequests]
}

// plain packs what is asked, but for memory, counts and name; 0 where that is not all.
func (r *Request) plain() uint64 {
	if r.SendCounts != nil || r.RecvCounts != nil || r.Starts != nil || r.Shape != nil || r.Alloc != nil || r.Agree ||
		factor(r.Pre) != 1 || factor(r.Post) != 1 || r.Root|r.Device != 0 || r.Kind == collective.Barrier || r.pair() {
		return 0
	}
	return uint64(r.Kind) | uint64(r.Type)<<8 | uint64(r.Op)<<16 | uint64(r.Send.Type)<<24 | uint64(r.Recv.Type)<<32
}

package transport

import (
	"errors"
	"fmt"
	"time"
)

// RoutedConfig says which ranks Routed reaches by which mesh.
type RoutedConfig struct {
	Rank  int
	Hosts []int    // host index of each rank of the group, by first appearance
	Names []string // host name of each rank; nil: unknown
	// Local reaches the ranks of Seats, which it numbers by seat; its errors name
	// group ranks. nil when this rank is alone on its host.
	Local Mesh
	Seats []int // group rank of each rank of Local, ascending
	// Remote holds all ranks under their group numbers; it is never asked to reach
	// one of Seats, and its Explain leaves those out. nil when all ranks are local.
	Remote Mesh
}

// Routed is one group's mesh over two links: memory to the ranks of this host,
// another mesh to the rest. What ends one ends the other.
type Routed struct {
	cfg  RoutedConfig
	seat []int // of each rank; -1: remote
}

// NewRouted joins the two meshes, which belong to the result from now on.
func NewRouted(cfg RoutedConfig) (*Routed, error) {
	r := &Routed{cfg: cfg, seat: make([]int, len(cfg.Hosts))}
	if cfg.Rank < 0 || cfg.Rank >= len(cfg.Hosts) {
		return nil, fmt.Errorf("join meshes: rank %d of %d", cfg.Rank, len(cfg.Hosts))
	}
	for i := range r.seat {
		r.seat[i] = -1
	}
	if cfg.Local != nil {
		if cfg.Local.Size() != len(cfg.Seats) {
			return nil, fmt.Errorf("join meshes: %d local ranks, %d seats", cfg.Local.Size(), len(cfg.Seats))
		}
		for seat, rank := range cfg.Seats {
			if rank < 0 || rank >= len(cfg.Hosts) || seat > 0 && rank <= cfg.Seats[seat-1] {
				return nil, fmt.Errorf("join meshes: seats %v of %d ranks are not ascending", cfg.Seats, len(cfg.Hosts))
			}
			r.seat[rank] = seat
		}
		if r.seat[cfg.Rank] != cfg.Local.Rank() {
			return nil, fmt.Errorf("join meshes: rank %d is not at seat %d of %v", cfg.Rank, cfg.Local.Rank(), cfg.Seats)
		}
	}
	if cfg.Remote == nil {
		for rank, seat := range r.seat {
			if seat < 0 && rank != cfg.Rank {
				return nil, fmt.Errorf("join meshes: no link to rank %d", rank)
			}
		}
	} else if cfg.Remote.Size() != len(cfg.Hosts) || cfg.Remote.Rank() != cfg.Rank {
		return nil, fmt.Errorf("join meshes: rank %d of %d remotely, %d of %d here", cfg.Remote.Rank(), cfg.Remote.Size(), cfg.Rank, len(cfg.Hosts))
	}
	r.join()
	return r, nil
}

// join lets a failure of one link end the waits on the other.
func (r *Routed) join() {
	if r.cfg.Local == nil || r.cfg.Remote == nil {
		return
	}
	if n, ok := r.cfg.Local.(FailureNotifier); ok {
		n.OnFail(r.cfg.Remote.Fail)
	}
	if n, ok := r.cfg.Remote.(FailureNotifier); ok {
		n.OnFail(r.cfg.Local.Fail)
	}
}

// Rank, Size, Hosts, HostName and Board: see Mesh.
func (r *Routed) Rank() int    { return r.cfg.Rank }
func (r *Routed) Size() int    { return len(r.cfg.Hosts) }
func (r *Routed) Hosts() []int { return r.cfg.Hosts }

// HostName is empty for a rank whose host's name nobody gave.
func (r *Routed) HostName(rank int) string {
	if rank < 0 || rank >= len(r.cfg.Names) {
		return ""
	}
	return r.cfg.Names[rank]
}

// Board is the board of the local link.
func (r *Routed) Board() *Board {
	if r.cfg.Local == nil {
		return nil
	}
	return r.cfg.Local.Board()
}

// Begin starts the operation on both links.
func (r *Routed) Begin(s Stamp, deadline time.Time) {
	if r.cfg.Local != nil {
		r.cfg.Local.Begin(s, deadline)
	}
	if r.cfg.Remote != nil {
		r.cfg.Remote.Begin(s, deadline)
	}
}

// Send and Recv take the link that reaches the rank.
func (r *Routed) Send(to int, p []byte) error {
	if seat := r.seat[to]; seat >= 0 {
		return r.cfg.Local.Send(seat, p)
	}
	return r.cfg.Remote.Send(to, p)
}

// Recv fills p from a rank.
func (r *Routed) Recv(from int, p []byte) error {
	if seat := r.seat[from]; seat >= 0 {
		return r.cfg.Local.Recv(seat, p)
	}
	return r.cfg.Remote.Recv(from, p)
}

// Exchange with one local and one remote rank does the local half first. That
// cannot deadlock: a local half waits for local halves only, which everybody does
// first (or, with two local ranks, at once), and a remote half for remote halves,
// whose ranks have no local half left that waits for anything but those.
func (r *Routed) Exchange(to int, out []byte, from int, in []byte) error {
	toSeat, fromSeat := -1, -1
	if to >= 0 {
		toSeat = r.seat[to]
	}
	if from >= 0 {
		fromSeat = r.seat[from]
	}
	switch {
	case (toSeat >= 0 || to < 0) && (fromSeat >= 0 || from < 0):
		if r.cfg.Local == nil {
			return nil // both halves left out
		}
		return r.cfg.Local.Exchange(toSeat, out, fromSeat, in)
	case toSeat < 0 && fromSeat < 0:
		return r.cfg.Remote.Exchange(to, out, from, in)
	case toSeat >= 0:
		if err := r.cfg.Local.Send(toSeat, out); err != nil {
			return err
		}
		return r.cfg.Remote.Recv(from, in)
	default:
		if err := r.cfg.Local.Recv(fromSeat, in); err != nil {
			return err
		}
		return r.cfg.Remote.Send(to, out)
	}
}

// Explain exchanges descriptions over both links at once: every rank tells those
// that it reaches, so whoever learns of the mismatch on either link tells both.
func (r *Routed) Explain(mine []byte) ([][]byte, error) {
	mine = mine[:min(len(mine), MaxDescription)]
	out := make([][]byte, len(r.cfg.Hosts))
	var local, remote [][]byte
	var localErr, remoteErr error
	done := make(chan struct{})
	if r.cfg.Local != nil {
		go func() {
			defer close(done)
			local, localErr = r.cfg.Local.Explain(mine)
		}()
	} else {
		close(done)
	}
	if r.cfg.Remote != nil {
		remote, remoteErr = r.cfg.Remote.Explain(mine)
	}
	<-done
	copy(out, remote)
	for seat, text := range local {
		out[r.cfg.Seats[seat]] = text
	}
	out[r.cfg.Rank] = mine
	return out, errors.Join(localErr, remoteErr)
}

// Tell takes the link that reaches the rank.
func (r *Routed) Tell(to int, msg []byte) error {
	if seat := r.seat[to]; seat >= 0 {
		return r.cfg.Local.Tell(seat, msg)
	}
	if r.cfg.Remote == nil {
		return fmt.Errorf("tell rank %d: no link reaches it", to)
	}
	return r.cfg.Remote.Tell(to, msg)
}

// OnTell listens on both links.
func (r *Routed) OnTell(f func(from int, msg []byte)) {
	if r.cfg.Remote != nil {
		r.cfg.Remote.OnTell(f)
	}
	if r.cfg.Local == nil {
		return
	}
	if f == nil {
		r.cfg.Local.OnTell(nil)
		return
	}
	r.cfg.Local.OnTell(func(seat int, msg []byte) { f(r.cfg.Seats[seat], msg) })
}

// OnFail listens on both links; f may be called by each.
func (r *Routed) OnFail(f func(error)) {
	for _, m := range []Mesh{r.cfg.Local, r.cfg.Remote} {
		if n, ok := m.(FailureNotifier); ok {
			n.OnFail(f)
		}
	}
}

// Fail ends both links.
func (r *Routed) Fail(err error) {
	if r.cfg.Local != nil {
		r.cfg.Local.Fail(err)
	}
	if r.cfg.Remote != nil {
		r.cfg.Remote.Fail(err)
	}
}

// Counters is the sum of both links.
func (r *Routed) Counters() Counters {
	var c Counters
	if r.cfg.Local != nil {
		c = c.Add(r.cfg.Local.Counters())
	}
	if r.cfg.Remote != nil {
		c = c.Add(r.cfg.Remote.Counters())
	}
	return c
}

// Close leaves on both links.
func (r *Routed) Close() error {
	var local, remote error
	if r.cfg.Local != nil {
		local = r.cfg.Local.Close()
	}
	if r.cfg.Remote != nil {
		remote = r.cfg.Remote.Close()
	}
	return errors.Join(local, remote)
}

var (
	_ Mesh            = (*Routed)(nil)
	_ FailureNotifier = (*Routed)(nil)
)

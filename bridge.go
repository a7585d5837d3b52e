package hora

import (
	"context"
	"unsafe"

	"hora/internal/bridge"
)

func init() {
	bridge.Offer(func(group any) bridge.Group {
		g := group.(*Group)
		return bridge.Group{Engine: g.engine, Memory: lent{g}, Finish: func() { g.farewell(0) }}
	})
}

// lent is a group's memory that a framework owns.
type lent struct{ g *Group }

func (l lent) Register(ctx context.Context, ptr unsafe.Pointer, size, fd int, offset int64) error {
	if l.g.link == nil {
		return nil
	}
	b, err := l.g.link.Adopt(ctx, ptr, size, fd, offset)
	if err != nil {
		return &OperationError{Kind: "register memory with group " + l.g.name, Err: err}
	}
	l.g.keep(b)
	return nil
}

func (l lent) Outlive(buffer []byte) {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	if b := takeOut(&l.g.buffers, buffer); b != nil {
		l.g.lasting = append(l.g.lasting, b)
	}
}

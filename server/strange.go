package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"hora/server/client"
	"hora/server/store"
)

// A pool's list may name machines that this server has not had made: another server's with a pool of that name, or,
// where its folder is a copy, those of the server that was copied, which may run. They count as nodes that may come,
// for as long as one that was made; and none is ended unless it has come. What decides is the store: a node stands
// there before it is made, and when it comes.

// forgo gives up a machine of another's making that has not come. It is left alone, and no node is called so while the
// list names it; in the loop, and what it answers outside.
func (s *Server) forgo(p *pool, name string) func() {
	s.log.Warn("a machine that this server has not made has not come, and is left alone", "pool", p.Name, "node", name)
	if p.List == "" {
		delete(p.strange, name)
	}
	spec := p.Pool
	return func() { s.forgetCopied(&spec, name) }
}

// unlisted forgets those that a list names no more; in the loop.
func (p *pool) unlisted(there []string) (gone []string) {
	for name := range p.strange {
		if !slices.Contains(there, name) {
			delete(p.strange, name)
			delete(p.foreign, name)
			delete(p.starting, name)
			gone = append(gone, name)
		}
	}
	return gone
}

// forgetCopied notes that a machine of the server that was copied does not come, unless it has.
func (s *Server) forgetCopied(p *client.Pool, name string) {
	forget := func(tx *sql.Tx) error { return store.DropCopied(tx, p.Name, name) }
	if err := s.store.Do(context.WithoutCancel(s.ctx), forget); err != nil && s.ctx.Err() == nil {
		s.log.Warn("note that a node does not come", "pool", p.Name, "node", name, "error", err)
	}
}

// isListed says whether a pool's list names a node that is to be made just now: another server may have taken the name
// since it was asked last, and not every command that makes a machine minds that there is one.
func (s *Server) isListed(p *client.Pool, name string) bool {
	if p.List == "" {
		return false
	}
	there, err := s.makes.List(p)
	return err == nil && slices.Contains(there, name)
}

// apart begins the numbers of nodes that a copy of a server's folder has made, far from those of the server that was
// copied, and from other copies'.
func apart() int { return (100_000 + rand.IntN(900_000)) * 1000 }

// awaited names the machines of others' making that may come and take the room that is left, while none is made; in the
// loop.
func (p *pool) awaited() string {
	for name := range p.starting {
		if !p.strange[name] {
			return ""
		}
	}
	if len(p.starting) == 0 || len(p.there)+len(p.starting)+p.stuck() < p.Max {
		return ""
	}
	names := slices.Sorted(maps.Keys(p.starting))
	return fmt.Sprintf("%s, which this server has not made, may come within %v, and there is no room for another beside", several(names), comesWithin(&p.Pool))
}

// strangers says what is to be known of them; in the loop.
func (s *Server) strangers(p *pool) error {
	var may, late []string
	for _, name := range slices.Sorted(maps.Keys(p.strange)) {
		if p.starting[name].IsZero() {
			late = append(late, name)
		} else {
			may = append(may, name)
		}
	}
	var all []string
	if len(may) > 0 && s.copied {
		all = append(all, several(may)+" may come, and is not ended if it does not: this server's folder is a copy of another's, which has made it")
	}
	if len(late) > 0 {
		all = append(all, fmt.Sprintf("list names %s, which has not come in %v: this server has not made it, and leaves it alone", several(late), comesWithin(&p.Pool)))
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

// several names the first of some, and says how many there are.
func several(names []string) string {
	if n := len(names) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more)", names[0], n)
	}
	return names[0]
}

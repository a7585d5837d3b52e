package server

import (
	"context"
	"database/sql"
	"maps"

	"hora/job/schedule"
	"hora/server/store"
)

// Nodes that join by themselves are kept in the store. A server that is started again counts them as away until they
// are back or its patience has ended: what is kept of the others for a gang that waits is not given away meanwhile.

// expectJoined takes up those that an earlier server had.
func (s *Server) expectJoined(ctx context.Context) (err error) {
	if s.joined, err = s.store.Nodes(ctx); err != nil {
		return err
	}
	for name, n := range s.joined {
		if p := s.pools[n.Pool]; p == nil || p.Provider != "static" {
			continue
		}
		s.hosts.Expect(schedule.Node{
			Name: name, Pool: n.Pool, Slots: n.Slots, Memory: n.Memory, GPUs: n.GPUs, Alone: n.Alone,
		})
	}
	return nil
}

// joinedNow are those that there are, or that are away; in the loop.
func (s *Server) joinedNow() map[string]store.Node {
	all := map[string]store.Node{}
	for name, n := range s.nodes {
		if p := s.pools[n.Pool]; p != nil && p.Provider == "static" {
			all[name] = store.Node{Pool: n.Pool, Slots: n.Slots, Memory: n.Memory, GPUs: n.GPUs, Alone: n.Alone}
		}
	}
	return all
}

// keepJoined writes down which there are, where they are others than those that are written down, and says whether it
// is written down. Only tendPools calls it.
func (s *Server) keepJoined(now map[string]store.Node) bool {
	if maps.Equal(now, s.joined) {
		return true
	}
	err := s.store.Do(s.ctx, func(tx *sql.Tx) error { return store.SetNodes(tx, now) })
	if err == nil {
		s.joined = now
	} else if s.ctx.Err() == nil {
		s.log.Warn("note which nodes have joined", "error", err)
	}
	return err == nil
}

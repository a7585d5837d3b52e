package server

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"hora/server/client"
	"hora/server/store"
)

// NodePath is what calls about one node have in common.
type NodePath struct {
	Name string `path:"name" minLength:"1" maxLength:"200" doc:"the node's name"`
}

// nodeCalls are those about the tokens that nodes come back with.
func (a *api) nodeCalls() {
	huma.Register(a, a.operation("node-tokens", "GET", "/nodes/tokens", "list the nodes that have joined, and come back with tokens of their own", everywhere(admin)),
		func(ctx context.Context, _ *struct{}) (*answer[[]client.Member], error) {
			all, err := a.members(ctx)
			return answered(filled(all), err)
		})
	huma.Register(a, a.operation("revoke-node", "DELETE", "/nodes/{name}/token", "take back a node's token, and those with which machines may still join its pool; its link ends", everywhere(admin)),
		func(ctx context.Context, in *NodePath) (*struct{}, error) {
			return nil, fault(a.revokeNode(ctx, in.Name))
		})
}

// members are the nodes with tokens of their own.
func (s *Server) members(ctx context.Context) (all []client.Member, err error) {
	tokens, err := s.store.NodeTokens(ctx)
	if err != nil {
		return nil, err
	}
	state := map[[2]string]string{}
	for _, n := range s.capacity() {
		if state[[2]string{n.Pool, n.Name}] = "ready"; n.Closed {
			state[[2]string{n.Pool, n.Name}] = "away"
		}
	}
	for _, t := range tokens {
		m := client.Member{Node: t.Node, Pool: t.Pool, Joined: t.Made, State: state[[2]string{t.Pool, t.Node}]}
		if m.State == "" {
			m.State = "gone"
		}
		all = append(all, m)
	}
	return all, nil
}

// revokeNode lets a node in no more. Its machine may have what lets any join its pool, so that goes too; and what it
// was doing is waited for as that of each node that is away, so that no job runs twice.
func (s *Server) revokeNode(ctx context.Context, name string) error {
	if err := s.drop(ctx, func(tx *sql.Tx) (bool, error) { return store.DropNode(tx, name) },
		refuse(http.StatusNotFound, "there is no node %s that has a token: hora node list has those that there are", name)); err != nil {
		return err
	}
	s.hosts.Cut(name)
	return nil
}

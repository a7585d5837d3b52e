package server

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"hora/server/client"
)

// PoolPath is what calls about one pool have in common.
type PoolPath struct {
	Name string `path:"name" maxLength:"60" pattern:"^[a-z0-9][a-z0-9-]*$" patternDescription:"a pool's name: write it with a-z, 0-9 and -, as in lab-2"`
}

func (a *api) poolCalls() {
	huma.Register(a, a.operation("pools", "GET", "/pools", "list the pools", anybody()),
		func(ctx context.Context, _ *struct{}) (*answer[[]client.Pool], error) {
			return answered(a.Pools(ctx))
		})
	huma.Register(a, a.operation("add-pool", "PUT", "/pools/{name}", "add a pool, or change one", everywhere(admin)), func(ctx context.Context, in *struct {
		PoolPath
		Body client.Pool
	},
	) (*answer[client.Pool], error) {
		in.Body.Name = in.Name
		return answered(a.AddPool(ctx, in.Body))
	})
	huma.Register(a, a.operation("remove-pool", "DELETE", "/pools/{name}", "remove a pool that no job uses; its nodes end", everywhere(admin)),
		func(ctx context.Context, in *PoolPath) (*struct{}, error) {
			return nil, fault(a.RemovePool(ctx, in.Name))
		})
	a.nodeCalls()
	huma.Register(a, a.operation("join-token", "POST", "/pools/{name}/token", "make a token with which machines may join a pool", everywhere(admin)), func(ctx context.Context, in *struct {
		PoolPath
		Body struct {
			Seconds float64 `json:"seconds" minimum:"1" maximum:"31536000" doc:"how long it is valid"`
		}
	},
	) (*answer[client.JoinToken], error) {
		return answered(a.JoinToken(ctx, in.Name, a.Address, seconds(in.Body.Seconds)))
	})
}

func problemAnswer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	p := NewFault(status, text)
	b, _ := json.Marshal(p)
	_, _ = w.Write(append(b, '\n'))
}

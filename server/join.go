package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"hora/server/client"
	"hora/server/fleet"
	"hora/server/node"
	"hora/server/store"
)

// PoolPath is what calls about one pool have in common.
type PoolPath struct {
	Name string `path:"name" maxLength:"60" pattern:"^[a-z0-9][a-z0-9-]*$" patternDescription:"a pool's name: a-z, 0-9 and -"`
}

func (a *api) poolCalls() {
	huma.Register(a, a.operation("pools", "GET", "/pools", "list the pools", anybody()),
		func(context.Context, *struct{}) (*answer[[]client.Pool], error) {
			return answered(a.Pools())
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

// machines lets nodes in, by their own tokens: those open nothing else.
func (a *api) machines(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/authority" && r.Method == http.MethodGet && len(a.Authority) > 0 {
			// Whoever asks compares it with the fingerprint that they have: it is no secret.
			w.Header().Set("Content-Type", "application/x-pem-file")
			_, _ = w.Write(a.Authority)
			return
		}
		text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		nodes := r.URL.Path == "/api/v1/node" || r.URL.Path == "/api/v1/node/conn"
		blob := r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/v1/blobs/")
		if !bearer || !nodes && !blob || blob && a.isOwner(text) {
			next.ServeHTTP(w, r)
			return
		}
		t, found, err := a.store.Token(r.Context(), text)
		switch {
		case err == nil && !found && blob:
			next.ServeHTTP(w, r) // a user's
			return
		case err != nil:
			problemAnswer(w, http.StatusServiceUnavailable, "the server cannot look the token up now: try again")
			return
		case !found:
			problemAnswer(w, http.StatusUnauthorized, "the server does not know this token: it is another server's, or its pool was removed: hora pool token POOL makes one")
			return
		case !t.Expires.IsZero() && time.Now().After(t.Expires):
			problemAnswer(w, http.StatusUnauthorized, "the token has expired on "+t.Expires.Format(time.DateTime)+" UTC: hora pool token "+t.Pool+" makes a new one")
			return
		case blob && t.Scope != store.ScopeNode:
			problemAnswer(w, http.StatusForbidden, "this token lets a node join and nothing else")
			return
		case blob:
			a.inside.ServeHTTP(w, r)
			return
		}
		a.enter(w, r, t)
	})
}

func problemAnswer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	p := NewFault(status, text)
	b, _ := json.Marshal(p)
	_, _ = w.Write(append(b, '\n'))
}

// enter takes a node's connection over.
func (a *api) enter(w http.ResponseWriter, r *http.Request, t store.Token) {
	if r.Header.Get("Upgrade") != node.Upgraded {
		problemAnswer(w, http.StatusBadRequest, "only hora node comes here")
		return
	}
	conn, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		problemAnswer(w, http.StatusHTTPVersionNotSupported, "a node comes by HTTP/1.1")
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if _, err := conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + node.Upgraded + "\r\n\r\n")); err != nil {
		conn.Close()
		return
	}
	if r.URL.Path == "/api/v1/node/conn" {
		if t.Scope != store.ScopeNode {
			conn.Close()
			return
		}
		a.fleet.Extra(r.URL.Query().Get("session"), r.URL.Query().Get("id"), conn)
		return
	}
	a.fleet.Enter(conn, in.Reader, fleet.Gate{
		Check: func(h *node.Hello) error { return a.admit(t, h) },
		Token: func(h *node.Hello) (string, error) {
			if t.Scope == store.ScopeNode {
				return "", nil
			}
			return a.token(context.WithoutCancel(r.Context()), store.Token{
				Scope: store.ScopeNode, Pool: h.Pool, Node: h.Name,
			})
		},
		Lives: a.lives,
	})
}

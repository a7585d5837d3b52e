package server

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"time"

	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

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
			a.unjoined(r, nobody, http.StatusUnauthorized, "")
			problemAnswer(w, http.StatusUnauthorized, "the server does not know this token: it was taken back, is another server's, or its pool was removed: hora pool token POOL makes one, to be given as HORA_TOKEN")
			return
		case !t.Expires.IsZero() && time.Now().After(t.Expires):
			a.unjoined(r, holder(&t), http.StatusUnauthorized, "its token has expired")
			problemAnswer(w, http.StatusUnauthorized, "the token has expired on "+t.Expires.Format(time.DateTime)+" UTC: hora pool token "+t.Pool+" makes a new one")
			return
		case blob && t.Scope != store.ScopeNode:
			a.unjoined(r, holder(&t), http.StatusForbidden, "its token lets a node join and nothing else")
			problemAnswer(w, http.StatusForbidden, "this token lets a node join and nothing else")
			return
		case blob:
			a.inside.ServeHTTP(w, r)
			return
		}
		a.enter(w, r, text, &t)
	})
}

// enter takes a node's connection over.
func (a *api) enter(w http.ResponseWriter, r *http.Request, text string, t *store.Token) {
	if !a.hasNodes() {
		problemAnswer(w, http.StatusNotFound, noNodesText)
		return
	}
	if r.Header.Get("Upgrade") != a.hosts.Upgraded() {
		problemAnswer(w, http.StatusBadRequest, "only hora node comes here")
		return
	}
	conn, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		problemAnswer(w, http.StatusHTTPVersionNotSupported, "a node comes by HTTP/1.1")
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if _, err := conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + a.hosts.Upgraded() + "\r\n\r\n")); err != nil {
		conn.Close()
		return
	}
	if r.URL.Path == "/api/v1/node/conn" {
		if t.Scope != store.ScopeNode {
			conn.Close()
			return
		}
		a.hosts.Extra(r.URL.Query().Get("session"), r.URL.Query().Get("id"), conn)
		return
	}
	a.hosts.Enter(conn, in.Reader, backend.Gate{
		Check: func(h *backend.Comer) error {
			err := a.admit(*t, h)
			if err != nil {
				a.unjoined(r, holder(t), http.StatusConflict, clip(err.Error()))
			}
			return err
		},
		Token: func(h *backend.Comer) (string, error) { return a.nodeToken(r, text, t, h) },
		Lives: a.lives,
	})
}

// nodeToken is a node's own token, where it came with one to join; a token that was taken back since it was looked up
// lets nobody in.
func (a *api) nodeToken(r *http.Request, text string, t *store.Token, h *backend.Comer) (own string, err error) {
	there, ctx := false, context.WithoutCancel(r.Context())
	look := func(tx *sql.Tx) (err error) {
		there, err = store.HasToken(tx, text)
		return err
	}
	by := a.commandsOf(h.Pool)
	came := func(tx *sql.Tx) error { // its machine is this server's to end from now on
		if by == nil {
			return nil
		}
		return store.SetCame(tx, &store.Made{Node: h.Name, Pool: *by})
	}
	if t.Scope == store.ScopeNode {
		known := true
		err = a.store.Read(ctx, func(tx *sql.Tx) (err error) {
			if err = look(tx); err == nil && there && by != nil {
				known, err = store.HasMade(tx, h.Pool, h.Name)
			}
			return err
		})
		if err == nil && !known {
			err = a.store.Do(ctx, came)
		}
	} else {
		d := &store.Deed{Deed: client.Deed{
			At: time.Now().UTC(), Who: "node " + h.Name, Address: addressOf(r), What: joining, Target: "/pools/" + h.Pool,
			Status: http.StatusOK, Text: slotsIn(h.Slots),
		}}
		own = client.Key() + client.Key()
		err = a.store.Do(store.WithDeed(ctx, d), func(tx *sql.Tx) error {
			if err := look(tx); err != nil {
				return err
			}
			if !there {
				return errTakenBack
			}
			if err := came(tx); err != nil {
				return err
			}
			is := store.Token{Scope: store.ScopeNode, Pool: h.Pool, Node: h.Name, Made: a.now()}
			return store.AddToken(tx, own, is)
		})
	}
	if err == nil && !there {
		err = errTakenBack
	}
	return own, err
}

// commandsOf is a pool whose nodes are made by commands; nil where they are not.
func (s *Server) commandsOf(pool string) (by *client.Pool) {
	_ = s.do(func() {
		if p := s.pools[pool]; p != nil && p.Provider == "command" {
			is := p.Pool
			by = &is
		}
	})
	return by
}

// errTakenBack is for who comes while its token is being revoked.
var errTakenBack = errors.New("the token was just taken back: hora pool token POOL makes another")

// joining is what records call it that a machine joins a pool, or is not let in.
const joining = "join"

// holder is whom records take who has a node's token, or one to join, for.
func holder(t *store.Token) string {
	if t.Node != "" {
		return "node " + t.Node
	}
	return "a machine for pool " + t.Pool
}

// unjoined records that a machine was not let in.
func (a *api) unjoined(r *http.Request, who string, status int, why string) {
	a.refused.note(a.Server, client.Deed{
		Who: who, Address: addressOf(r), What: joining, Target: clip(strings.TrimPrefix(r.URL.Path, "/api/v1")),
		Status: status, Text: why,
	})
}

package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"hora/server/client"
)

// What a token lets its holder do.
const (
	ScopeJoin = "join" // bring new nodes into a pool
	ScopeNode = "node" // be one node
)

// Token is what is kept of one: never itself, only its hash.
type Token struct {
	Scope   string
	Pool    string
	Node    string
	Expires time.Time // zero for one that does not
	Made    time.Time // zero where that was not noted
}

func tokenHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// AddToken keeps a token, that of a node in place of the one before.
func AddToken(tx *sql.Tx, text string, t Token) error {
	if t.Scope == ScopeNode {
		if _, err := tx.Exec("DELETE FROM tokens WHERE scope = ? AND pool = ? AND node = ?", t.Scope, t.Pool, t.Node); err != nil {
			return err
		}
	}
	_, err := tx.Exec("INSERT INTO tokens (hash, scope, pool, node, expires, made) VALUES (?, ?, ?, ?, ?, ?)",
		tokenHash(text), t.Scope, t.Pool, t.Node, nanos(t.Expires), nanos(t.Made))
	return err
}

// Token finds a token; false where there is none like it.
func (s *Store) Token(ctx context.Context, text string) (t Token, found bool, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		var expires int64
		err := tx.QueryRow("SELECT scope, pool, node, expires FROM tokens WHERE hash = ?", tokenHash(text)).Scan(&t.Scope, &t.Pool, &t.Node, &expires)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		found, t.Expires = err == nil, at(expires)
		return err
	})
	return t, found, err
}

// HasToken says whether a token is there still.
func HasToken(tx *sql.Tx, text string) (there bool, err error) {
	err = tx.QueryRow("SELECT EXISTS (SELECT 1 FROM tokens WHERE hash = ?)", tokenHash(text)).Scan(&there)
	return there, err
}

// NodeTokens lists the nodes that have a token of their own.
func (s *Store) NodeTokens(ctx context.Context) (all []Token, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT pool, node, made FROM tokens WHERE scope = ? ORDER BY node, pool", ScopeNode)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			t := Token{Scope: ScopeNode}
			var made int64
			if err := rows.Scan(&t.Pool, &t.Node, &made); err != nil {
				return err
			}
			t.Made = at(made)
			all = append(all, t)
		}
		return rows.Err()
	})
	return all, err
}

// DropNode forgets a node's tokens, and those with which its machine could join once more: that has been told of them.
// False where it has none.
func DropNode(tx *sql.Tx, name string) (bool, error) {
	if _, err := tx.Exec("DELETE FROM tokens WHERE scope = ? AND (node = ? OR node = '' AND pool IN (SELECT pool FROM tokens WHERE scope = ? AND node = ?))", ScopeJoin, name, ScopeNode, name); err != nil {
		return false, err
	}
	return changed(tx.Exec("DELETE FROM tokens WHERE scope = ? AND node = ?", ScopeNode, name))
}

// SetPool keeps a pool.
func SetPool(tx *sql.Tx, p *client.Pool) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT OR REPLACE INTO pools (name, document) VALUES (?, ?)", p.Name, string(b))
	return err
}

// DropPool forgets a pool, and the tokens with which nodes came into it. What made these nodes of it, and those that it
// has noted before, stays until they are gone.
func DropPool(tx *sql.Tx, p *client.Pool, nodes []string) error {
	if _, err := tx.Exec("DELETE FROM tokens WHERE pool = ?", p.Name); err != nil {
		return err
	}
	if p.Provider != "static" { // or their machines are nobody's to end
		b, err := json.Marshal(p)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if _, err := tx.Exec("INSERT OR IGNORE INTO made (pool, node, document) VALUES (?, ?, ?)", p.Name, n, string(b)); err != nil {
				return err
			}
		}
	}
	_, err := tx.Exec("DELETE FROM pools WHERE name = ?", p.Name)
	return err
}

// Pools lists the pools.
func (s *Store) Pools(ctx context.Context) (all []client.Pool, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT document FROM pools ORDER BY name")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			var p client.Pool
			if err := rows.Scan(&text); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				return err
			}
			all = append(all, p)
		}
		return rows.Err()
	})
	return all, err
}

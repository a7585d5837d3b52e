package store

import (
	"context"
	"database/sql"
	"encoding/json"
)

// Node is one that has joined by itself.
type Node struct {
	Pool   string
	Slots  int
	Memory int64
	GPUs   int
	Alone  bool // of a release whose elastic jobs have no other nodes
}

// SetNodes keeps which nodes have joined by themselves, in place of those that were kept before.
func SetNodes(tx *sql.Tx, all map[string]Node) error {
	if _, err := tx.Exec("DELETE FROM nodes"); err != nil {
		return err
	}
	for name, n := range all {
		b, err := json.Marshal(n)
		if err != nil {
			return err
		}
		if _, err := tx.Exec("INSERT INTO nodes (name, document) VALUES (?, ?)", name, string(b)); err != nil {
			return err
		}
	}
	return nil
}

// Nodes are those that had joined by themselves when the last server ended.
func (s *Store) Nodes(ctx context.Context) (all map[string]Node, err error) {
	all = map[string]Node{}
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT name, document FROM nodes")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var name, text string
			var n Node
			if err := rows.Scan(&name, &text); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(text), &n); err != nil {
				return err
			}
			all[name] = n
		}
		return rows.Err()
	})
	return all, err
}

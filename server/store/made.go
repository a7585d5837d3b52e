package store

import (
	"context"
	"database/sql"
	"encoding/json"

	"hora/server/client"
)

// Made is a node that the server has had made, and the pool as it was then: its commands end the node, whatever the
// pool's are now.
type Made struct {
	Node string
	Pool client.Pool
}

// SetMade notes that a node is being made.
func SetMade(tx *sql.Tx, m *Made) error {
	b, err := json.Marshal(&m.Pool)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT OR REPLACE INTO made (pool, node, document) VALUES (?, ?, ?)", m.Pool.Name, m.Node, string(b))
	return err
}

// DropMade notes that it is gone.
func DropMade(tx *sql.Tx, pool, node string) error {
	_, err := tx.Exec("DELETE FROM made WHERE pool = ? AND node = ?", pool, node)
	return err
}

// Made lists the nodes of a pool that were made and are not gone; of all pools where its name is empty.
func (s *Store) Made(ctx context.Context, pool string) (all []Made, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT node, document FROM made WHERE ? = '' OR pool = ? ORDER BY pool, node", pool, pool)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var m Made
			var text string
			if err := rows.Scan(&m.Node, &text); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(text), &m.Pool); err != nil {
				return err
			}
			all = append(all, m)
		}
		return rows.Err()
	})
	return all, err
}

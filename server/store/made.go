package store

import (
	"context"
	"database/sql"
	"encoding/json"

	"hora/server/client"
)

// Made is a node that the server has had made, or that has come to it, and the pool as it was then: its commands end
// the node, whatever the pool's are now.
type Made struct {
	Node   string
	Pool   client.Pool
	Copied bool // by the server of whose folder this one is a copy, and it has not come since
}

// SetMade notes that a node is being made.
func SetMade(tx *sql.Tx, m *Made) error { return setMade(tx, "REPLACE", m) }

// SetCame notes that a node has come: it is this server's, whoever has made it.
func SetCame(tx *sql.Tx, m *Made) error { return setMade(tx, "IGNORE", m) }

func setMade(tx *sql.Tx, or string, m *Made) error {
	b, err := json.Marshal(&m.Pool)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT OR "+or+" INTO made (pool, node, document) VALUES (?, ?, ?)", m.Pool.Name, m.Node, string(b))
	if err == nil {
		_, err = tx.Exec("DELETE FROM copied WHERE pool = ? AND node = ?", m.Pool.Name, m.Node)
	}
	return err
}

// isCopied is whether a row of made is of a node that another server has had made.
const isCopied = "EXISTS (SELECT 1 FROM copied c WHERE c.pool = made.pool AND c.node = made.node)"

// HasMade says whether a node is this server's.
func HasMade(tx *sql.Tx, pool, node string) (has bool, err error) {
	err = tx.QueryRow("SELECT EXISTS (SELECT 1 FROM made WHERE pool = ? AND node = ? AND NOT "+isCopied+")", pool, node).Scan(&has)
	return has, err
}

// DropMade notes that it is gone.
func DropMade(tx *sql.Tx, pool, node string) error {
	_, err := tx.Exec("DELETE FROM made WHERE pool = ? AND node = ?", pool, node)
	return err
}

// DropCopied forgets a node that another server has had made, unless it has come.
func DropCopied(tx *sql.Tx, pool, node string) error {
	_, err := tx.Exec("DELETE FROM made WHERE pool = ? AND node = ? AND "+isCopied, pool, node)
	return err
}

// Copied says whether the folder is a copy of another server's.
func (s *Store) Copied(ctx context.Context) (is bool, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRow("SELECT EXISTS (SELECT 1 FROM copied WHERE pool = '' AND node = '')").Scan(&is)
	})
	return is, err
}

// Made lists the nodes of a pool that were made and are not gone; of all pools where its name is empty.
func (s *Store) Made(ctx context.Context, pool string) (all []Made, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT node, document, "+isCopied+" FROM made WHERE ? = '' OR pool = ? ORDER BY pool, node", pool, pool)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var m Made
			var text string
			if err := rows.Scan(&m.Node, &text, &m.Copied); err != nil {
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

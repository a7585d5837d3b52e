package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"hora/server/client"
)

// Pass is a person's token or a browser's session, as it is kept: never itself, only its hash.
type Pass struct {
	client.Pass
	Parent string    // of a session: the hash of the token it was made from
	Until  time.Time // of a session: when that one expires
	Roles  []client.Role
}

// HashOf is what is kept of a token.
func HashOf(text string) string { return tokenHash(text) }

// SetRole gives a user a role in a project, and takes it away where it is empty; a user that is not there yet is added.
func SetRole(tx *sql.Tx, user, project, role string, now time.Time) error {
	if role == "" {
		_, err := tx.Exec("DELETE FROM roles WHERE user = ? AND project = ?", user, project)
		return err
	}
	if _, err := tx.Exec("INSERT OR IGNORE INTO users (name, added) VALUES (?, ?)", user, nanos(now)); err != nil {
		return err
	}
	_, err := tx.Exec("INSERT OR REPLACE INTO roles (user, project, role) VALUES (?, ?, ?)", user, project, role)
	return err
}

// DropUser forgets a user with roles, tokens and sessions; false where there is none.
func DropUser(tx *sql.Tx, user string) (bool, error) {
	if _, err := tx.Exec("DELETE FROM passes WHERE user = ?", user); err != nil {
		return false, err
	}
	return changed(tx.Exec("DELETE FROM users WHERE name = ?", user))
}

func changed(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// Users lists the users with their roles.
func (s *Store) Users(ctx context.Context) (all []client.User, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT name, added, coalesce(project, ''), coalesce(role, '') FROM users LEFT JOIN roles ON user = name ORDER BY name, project")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var u client.User
			var r client.Role
			var added int64
			if err := rows.Scan(&u.Name, &added, &r.Project, &r.Role); err != nil {
				return err
			}
			if u.Added = at(added); len(all) == 0 || all[len(all)-1].Name != u.Name {
				all = append(all, u)
			}
			if last := &all[len(all)-1]; r.Role != "" {
				last.Roles = append(last.Roles, r)
			}
		}
		return rows.Err()
	})
	return all, err
}

// AddPass keeps a token or a session, and answers its number.
func AddPass(tx *sql.Tx, text string, p *Pass, now time.Time) (int64, error) {
	r, err := tx.Exec("INSERT INTO passes (hash, user, parent, role, project, job, label, made, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		tokenHash(text), p.User, p.Parent, p.Role, p.Project, p.Job, p.Label, nanos(now), nanos(p.Expires))
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

const passColumns = "id, user, parent, role, project, job, label, made, expires"

func scanPass(scan func(...any) error, p *Pass) error {
	var made, expires int64
	err := scan(&p.ID, &p.User, &p.Parent, &p.Role, &p.Project, &p.Job, &p.Label, &made, &expires)
	p.Made, p.Expires = at(made), at(expires)
	return err
}

// Pass finds a token or a session by its text, with its user's roles; false where there is none. What it was made from
// must be there still: owner is the hash of the server's own token.
func (s *Store) Pass(ctx context.Context, text, owner string) (p Pass, found bool, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		err := scanPass(tx.QueryRow("SELECT "+passColumns+" FROM passes WHERE hash = ?", tokenHash(text)).Scan, &p)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if p.Parent != "" && p.Parent != owner {
			var expires int64
			err := tx.QueryRow("SELECT expires FROM passes WHERE hash = ?", p.Parent).Scan(&expires)
			if errors.Is(err, sql.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			p.Until = at(expires)
			if e := p.Until; !e.IsZero() && (p.Expires.IsZero() || e.Before(p.Expires)) {
				p.Expires = e
			}
		}
		found = true
		rows, err := tx.Query("SELECT project, role FROM roles WHERE user = ?", p.User)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r client.Role
			if err := rows.Scan(&r.Project, &r.Role); err != nil {
				return err
			}
			p.Roles = append(p.Roles, r)
		}
		return rows.Err()
	})
	return p, found, err
}

// Passes lists the tokens of a user, of all with "": sessions are none.
func (s *Store) Passes(ctx context.Context, user string) (all []client.Pass, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT "+passColumns+" FROM passes WHERE parent = '' AND (? = '' OR user = ?) ORDER BY id", user, user)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var p Pass
			if err := scanPass(rows.Scan, &p); err != nil {
				return err
			}
			all = append(all, p.Pass)
		}
		return rows.Err()
	})
	return all, err
}

// DropPass forgets a token and the sessions that were made from it; false where there is none. With a user it is one of
// that user's.
func DropPass(tx *sql.Tx, id int64, user string) (bool, error) {
	if _, err := tx.Exec("DELETE FROM passes WHERE parent <> '' AND parent IN (SELECT hash FROM passes WHERE id = ? AND (? = '' OR user = ?))", id, user, user); err != nil {
		return false, err
	}
	return changed(tx.Exec("DELETE FROM passes WHERE id = ? AND parent = '' AND (? = '' OR user = ?)", id, user, user))
}

// DropSession forgets a session by its text.
func DropSession(tx *sql.Tx, text string) error {
	_, err := tx.Exec("DELETE FROM passes WHERE hash = ? AND parent <> ''", tokenHash(text))
	return err
}

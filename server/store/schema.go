package store

import (
	"database/sql"
	"fmt"
	"os"
)

// copiedTable is made in each copy of a folder, of whatever version that is. A row without names says that the folder
// is a copy, the others which of the nodes in made another server has had made.
const copiedTable = `
CREATE TABLE IF NOT EXISTS copied (
	pool TEXT NOT NULL, node TEXT NOT NULL,
	PRIMARY KEY (pool, node)
) STRICT, WITHOUT ROWID;
`

// versions are the steps from an empty database to this release's; user_version counts how many were taken. A step that
// was released is never changed.
var versions = []string{
	`
CREATE TABLE jobs (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	state TEXT NOT NULL,
	project TEXT NOT NULL, pool TEXT NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL,
	priority INTEGER NOT NULL,
	queued INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0, ended INTEGER NOT NULL DEFAULT 0, -- nanoseconds since 1970
	failures INTEGER NOT NULL DEFAULT 0,
	code INTEGER NOT NULL DEFAULT 0,
	text TEXT NOT NULL DEFAULT '',
	document TEXT NOT NULL
) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, id) WHERE state IN ('queued', 'preparing', 'running', 'paused');
CREATE TABLE attempts (
	job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	number INTEGER NOT NULL,
	started INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0,
	outcome TEXT NOT NULL DEFAULT '', code INTEGER NOT NULL DEFAULT 0, text TEXT NOT NULL DEFAULT '',
	shares TEXT NOT NULL,
	taken INTEGER NOT NULL DEFAULT 0, -- records of its outbox that are in here
	stop TEXT NOT NULL DEFAULT '',    -- why it was told to end
	forgotten INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE keys (key TEXT PRIMARY KEY, job INTEGER NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE lines (
	job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, attempt INTEGER NOT NULL,
	first INTEGER NOT NULL, last INTEGER NOT NULL,   -- numbers of lines
	begins INTEGER NOT NULL, ends INTEGER NOT NULL,  -- their times
	codec INTEGER NOT NULL, block BLOB NOT NULL,     -- 0 JSON lines, 1 the same through zstd
	PRIMARY KEY (job, attempt, first)
) STRICT, WITHOUT ROWID;
CREATE TABLE metrics (
	job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	name TEXT NOT NULL, rank INTEGER NOT NULL, seq INTEGER NOT NULL,
	first INTEGER NOT NULL, last INTEGER NOT NULL,   -- steps
	count INTEGER NOT NULL, low REAL NOT NULL, high REAL NOT NULL, final REAL NOT NULL,
	block BLOB NOT NULL,                             -- 24 bytes a point: step, milliseconds, value
	PRIMARY KEY (job, name, rank, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE happenings (
	job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, number INTEGER NOT NULL,
	at INTEGER NOT NULL, attempt INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, fields TEXT NOT NULL,
	PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE artifacts (
	job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, path TEXT NOT NULL,
	size INTEGER NOT NULL, hash TEXT NOT NULL, at INTEGER NOT NULL,
	PRIMARY KEY (job, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE projects (name TEXT PRIMARY KEY, used REAL NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
`,
	`
CREATE TABLE quotas (project TEXT PRIMARY KEY, slots INTEGER NOT NULL, most INTEGER NOT NULL, share REAL NOT NULL) STRICT, WITHOUT ROWID;
`,
	`
CREATE TABLE tags (
	job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, name TEXT NOT NULL, value TEXT NOT NULL,
	PRIMARY KEY (job, name)
) STRICT, WITHOUT ROWID;
`,
	`
CREATE TABLE pools (name TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tokens (
	hash TEXT PRIMARY KEY, scope TEXT NOT NULL, pool TEXT NOT NULL, node TEXT NOT NULL,
	expires INTEGER NOT NULL -- nanoseconds since 1970; 0 for never
) STRICT, WITHOUT ROWID;
`,
	`
CREATE TABLE webhooks (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	url TEXT NOT NULL, project TEXT NOT NULL, states TEXT NOT NULL, secret TEXT NOT NULL,
	delivered INTEGER NOT NULL DEFAULT 0, failed TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE deliveries (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	webhook INTEGER NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
	at INTEGER NOT NULL, due INTEGER NOT NULL, -- nanoseconds since 1970
	tries INTEGER NOT NULL DEFAULT 0,
	body TEXT NOT NULL
) STRICT;
CREATE INDEX deliveries_by_webhook ON deliveries (webhook, due);
CREATE TABLE retention (
	project TEXT NOT NULL, kind TEXT NOT NULL, seconds INTEGER NOT NULL, -- an empty project stands for those that have none of their own
	PRIMARY KEY (project, kind)
) STRICT, WITHOUT ROWID;
`,
	`
CREATE TABLE users (name TEXT PRIMARY KEY, added INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE roles (
	user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
	project TEXT NOT NULL, -- '*' for all of them
	role TEXT NOT NULL,
	PRIMARY KEY (user, project)
) STRICT, WITHOUT ROWID;
CREATE TABLE passes ( -- people's tokens, and the sessions of their browsers
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	hash TEXT NOT NULL UNIQUE,
	user TEXT NOT NULL,                                   -- '' for who has the server's own token
	parent TEXT NOT NULL,                                 -- of a session: the hash of what it was made from
	role TEXT NOT NULL, project TEXT NOT NULL, job INTEGER NOT NULL, -- narrower than the user's roles, where not empty
	label TEXT NOT NULL,
	made INTEGER NOT NULL, expires INTEGER NOT NULL       -- nanoseconds since 1970; 0 for never
) STRICT;
CREATE TABLE audit (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	at INTEGER NOT NULL, who TEXT NOT NULL, address TEXT NOT NULL,
	what TEXT NOT NULL, target TEXT NOT NULL, status INTEGER NOT NULL, text TEXT NOT NULL,
	before TEXT NOT NULL, hash TEXT NOT NULL -- of the record before this one, and of this one with it
) STRICT;
`,
	`
CREATE TABLE secrets (
	project TEXT NOT NULL, name TEXT NOT NULL,
	box BLOB NOT NULL,                           -- for the key in secrets.key, beside the database
	by TEXT NOT NULL, at INTEGER NOT NULL,
	PRIMARY KEY (project, name)
) STRICT, WITHOUT ROWID;
`,
	`
CREATE TABLE lent ( -- keys to storage that go along with a job, until its end
	job INTEGER PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
	box BLOB NOT NULL -- for the key in secrets.key
) STRICT;
`,
	`
ALTER TABLE keys ADD COLUMN request TEXT NOT NULL DEFAULT ''; -- hash of what was sent
CREATE INDEX keys_by_time ON keys (at);
CREATE TABLE answers ( -- of calls with an idempotency key
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	id TEXT NOT NULL UNIQUE,  -- hash of caller and key
	request TEXT NOT NULL,
	at INTEGER NOT NULL,      -- nanoseconds since 1970
	answer BLOB               -- for who has the caller's token and the key; NULL while it is not known
) STRICT;
CREATE INDEX answers_by_time ON answers (at);
`,
	`
CREATE TABLE made ( -- nodes that the server has had made
	pool TEXT NOT NULL, node TEXT NOT NULL,
	document TEXT NOT NULL, -- the pool as it was then
	PRIMARY KEY (pool, node)
) STRICT, WITHOUT ROWID;
`, `
CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL, since INTEGER NOT NULL) STRICT;
`, `
CREATE TABLE nodes (name TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT, WITHOUT ROWID; -- those that have joined by themselves
`,
	// From here on documents of pools may say for whose jobs they are, which releases before would let everybody into.
	`
ALTER TABLE tokens ADD COLUMN made INTEGER NOT NULL DEFAULT 0; -- nanoseconds since 1970; 0 where nobody knows
`,
	leastAndGreatest,
	`
CREATE TABLE parts ( -- what has been heard of the ranks on an attempt's other nodes, of each process that kept a part
	job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	attempt INTEGER NOT NULL, node TEXT NOT NULL,
	begun INTEGER NOT NULL,  -- nanoseconds since 1970
	taken INTEGER NOT NULL,  -- records of its outbox that are in here
	PRIMARY KEY (job, attempt, node, begun)
) STRICT, WITHOUT ROWID;
`,
	`
ALTER TABLE attempts ADD COLUMN opened INTEGER NOT NULL DEFAULT 0; -- all its processes had come
`,
	copiedTable,
}

// migrate takes the steps that are missing, in one transaction, after a copy was made.
func migrate(db *sql.DB, name string) error {
	var have int
	if err := db.QueryRow("PRAGMA user_version").Scan(&have); err != nil {
		return plain(err)
	}
	switch {
	case have == len(versions):
		return nil
	case have > len(versions):
		return fmt.Errorf("it was written by a newer release (version %d, this one knows %d): install that release of hora-server, or restore a backup", have, len(versions))
	case have > 0:
		if err := Copy(db, fmt.Sprintf("%s.before-%d", name, len(versions))); err != nil {
			return fmt.Errorf("copy it before it is brought up to date: %w", err)
		}
	}
	tx, err := db.Begin()
	if err != nil {
		return plain(err)
	}
	defer func() { _ = tx.Rollback() }()
	for i := have; i < len(versions); i++ {
		_, err := tx.Exec(versions[i])
		if err == nil && versions[i] == leastAndGreatest {
			err = spanSteps(tx)
		}
		if err != nil {
			return fmt.Errorf("bring it to version %d: %w: it is as it was: go on with the release that wrote it", i+1, err)
		}
	}
	if _, err := tx.Exec(fmt.Sprintf("PRAGMA user_version = %d", len(versions))); err != nil {
		return err
	}
	return tx.Commit()
}

// Copy writes a copy of a database that may be in use, whole or not at all.
func Copy(db *sql.DB, to string) error {
	part := to + ".part"
	if err := os.Remove(part); err != nil && !os.IsNotExist(err) {
		return err
	}
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) // it is never another's to read
	if err != nil {
		return err
	}
	f.Close()
	defer func() { // where it is not whole
		_ = os.Remove(part)
		_ = os.Remove(part + "-journal")
	}()
	if _, err := db.Exec("VACUUM INTO ?", part); err != nil {
		return plain(err)
	}
	if f, err = os.OpenFile(part, os.O_RDWR, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(part, to)
}

package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"

	"modernc.org/sqlite"
)

// preparing makes connections that keep their statements: to parse and plan one costs more than to run it, and a server
// says the same few all day.
type preparing struct{ driver.Connector }

func newConnector(dsn string) (driver.Connector, error) {
	c, err := sqlite.NewConnector(dsn)
	return preparing{c}, err
}

// bare is what a connection of the driver does, beside statements.
type bare interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

func (p preparing) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	b, ok := c.(bare)
	if !ok {
		return nil, errors.Join(errors.New("the database's driver does not do what this release expects of it"), c.Close())
	}
	return &keeping{b, map[string]*prepared{}}, nil
}

// keeping is a connection with its statements. As any connection it is one goroutine's at a time.
type keeping struct {
	bare
	all map[string]*prepared
}

// prepared is a statement. One whose rows are still read is not lent again: who asks meanwhile gets one of his own.
type prepared struct {
	driver.Stmt
	lent bool
}

// keepMost bounds how many a connection keeps; lists of jobs by states and of tags make some that differ.
const keepMost = 100

// worth says whether a statement comes again. What changes the schema, and what is several in one text, does not.
func worth(query string) bool {
	word, _, _ := strings.Cut(query, " ")
	switch word {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "SAVEPOINT", "RELEASE", "ROLLBACK":
		return !strings.Contains(query, ";")
	}
	return false
}

// lend answers the statement of a text; nil where it is to be run without one.
func (c *keeping) lend(ctx context.Context, query string) (*prepared, error) {
	if p := c.all[query]; p != nil {
		if p.lent {
			return nil, nil
		}
		return p, nil
	}
	if len(c.all) >= keepMost || !worth(query) {
		return nil, nil
	}
	s, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	p := &prepared{Stmt: s}
	c.all[query] = p
	return p, nil
}

func (c *keeping) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	p, err := c.lend(ctx, query)
	if err != nil {
		return nil, err
	}
	if p != nil {
		if s, ok := p.Stmt.(driver.StmtExecContext); ok {
			return s.ExecContext(ctx, args)
		}
	}
	return c.bare.ExecContext(ctx, query, args)
}

func (c *keeping) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	p, err := c.lend(ctx, query)
	if err != nil {
		return nil, err
	}
	if p != nil {
		if s, ok := p.Stmt.(driver.StmtQueryContext); ok {
			rows, err := s.QueryContext(ctx, args)
			if err != nil {
				return nil, err
			}
			p.lent = true
			return &lentRows{rows, p}, nil
		}
	}
	return c.bare.QueryContext(ctx, query, args)
}

// Close ends the statements, and the connection.
func (c *keeping) Close() error {
	var failed error
	for _, p := range c.all {
		failed = errors.Join(failed, p.Close())
	}
	return errors.Join(failed, c.bare.Close())
}

// lentRows give their statement back when they are closed.
type lentRows struct {
	driver.Rows
	of *prepared
}

func (r *lentRows) Close() error {
	r.of.lent = false
	return r.Rows.Close()
}

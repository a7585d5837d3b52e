// Package store keeps what a server must not forget, in one SQLite file that any tool reads, and blobs by hash beside
// it.
//
// What Do has returned without an error is on the disk: the log is synced at each commit, and one goroutine commits for
// all who wait, so that many writes share a sync. Reads go beside it and see what was committed. Only cmd/horad imports
// it.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Store is open until Close.
type Store struct {
	dir    string
	write  *sql.DB
	read   *sql.DB
	lock   *os.File
	asks   chan ask
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup

	sweeping sync.RWMutex // held while content is removed, and while it is looked for

	counting sync.Mutex // guards counts
	counts   Counts
}

type ask struct {
	f    func(*sql.Tx) error
	done chan error
}

// groupMost is how many writes share a commit.
const groupMost = 256

// DatabaseFile is the name of the database in the server's folder.
const DatabaseFile = "hora.db"

// ErrTaken is for a folder that another server has open.
var ErrTaken = errors.New("another server has this folder open")

// Open opens a server's folder, makes what is missing, and brings an older database up to date.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "blobs"), 0o700); err != nil {
		if bare := (*os.PathError)(nil); errors.As(err, &bare) {
			err = bare.Err
		}
		return nil, fmt.Errorf("make the folder %s: %w: give another --dir, in a folder where you may write", dir, err)
	}
	if err := local(dir); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := take(lock); err != nil {
		lock.Close()
		return nil, fmt.Errorf("open %s: %w: end it with hora down, or give another --dir", dir, err)
	}
	s := &Store{dir: dir, lock: lock, asks: make(chan ask, groupMost), closed: make(chan struct{})}
	name := filepath.Join(dir, DatabaseFile)
	private, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600) // its log gets the same mode
	if err != nil {
		s.Close()
		return nil, err
	}
	private.Close()
	if err := dropParts(dir); err != nil {
		s.Close()
		return nil, err
	}
	if s.write, err = connect(name, "", 1); err == nil {
		err = migrate(s.write, name)
	}
	if err == nil {
		s.read, err = connect(name, "&_pragma=query_only(1)", 4)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open %s: %w", name, plain(err))
	}
	s.wg.Go(s.writer)
	return s, nil
}

// takeWait is how long a folder that is taken may become free. A process that a server was starting when it was killed
// has the server's files, and so its lock, until it is the program that it becomes.
const takeWait = 2 * time.Second

// take locks a folder for this process.
func take(lock *os.File) error {
	for end := time.Now().Add(takeWait); ; <-time.After(20 * time.Millisecond) {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		case time.Now().After(end):
			return ErrTaken
		}
	}
}

func connect(name, more string, conns int) (*sql.DB, error) {
	c, err := newConnector("file:" + escape(name) + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_txlock=immediate" + more)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	if err := db.Ping(); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// escape makes a path fit for a URI.
func escape(name string) string {
	var out []byte
	for i := range len(name) {
		switch c := name[i]; c {
		case '?', '#', '%':
			out = fmt.Appendf(out, "%%%02X", c)
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

// Dir is the server's folder.
func (s *Store) Dir() string { return s.dir }

// Close ends the store; writes that wait fail.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closed)
		s.wg.Wait()
		if s.read != nil {
			err = s.read.Close()
		}
		if s.write != nil {
			err = errors.Join(err, s.write.Close())
		}
		err = errors.Join(err, s.lock.Close())
	})
	return err
}

// ErrClosed is for writes to a store that is being closed.
var ErrClosed = errors.New("the server is ending")

// Do runs f in a transaction, together with others. When it returns nil what f wrote is on the disk; when f fails
// nothing of it is, and the others' writes are not touched. f may run only once and keeps nothing of the transaction.
func (s *Store) Do(ctx context.Context, f func(*sql.Tx) error) error {
	f, unnoted := noting(ctx, f)
	f, unclaimed := claiming(ctx, f)
	a := ask{f, make(chan error, 1)}
	answered := func(err error) error {
		if err != nil {
			unnoted()
			unclaimed()
		}
		return err
	}
	select {
	case s.asks <- a:
	case <-s.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-a.done: // not ctx: who stops waiting would not know whether it was written
		return answered(err)
	case <-s.closed:
		select {
		case err := <-a.done:
			return answered(err)
		case <-time.After(5 * time.Second):
			return ErrClosed
		}
	}
}

// Counts are of a store's life: what it wrote, in how many commits, and how long those took.
type Counts struct {
	Writes, Commits uint64
	Time            time.Duration
}

// Counts answers what has been counted since the store was opened.
func (s *Store) Counts() Counts {
	s.counting.Lock()
	defer s.counting.Unlock()
	return s.counts
}

func (s *Store) count(writes int, took time.Duration) {
	s.counting.Lock()
	defer s.counting.Unlock()
	s.counts.Writes += uint64(writes)
	s.counts.Commits++
	s.counts.Time += took
}

func (s *Store) writer() {
	for {
		select {
		case <-s.closed:
			return
		case a := <-s.asks:
			group := []ask{a}
		more:
			for len(group) < groupMost {
				select {
				case a := <-s.asks:
					group = append(group, a)
				default:
					break more
				}
			}
			s.commit(group)
		}
	}
}

// commit runs a group in one transaction, each of it behind a savepoint.
func (s *Store) commit(group []ask) {
	errs := make([]error, len(group))
	begin := time.Now()
	err := func() error {
		tx, err := s.write.Begin()
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		for i, a := range group {
			if _, err := tx.Exec("SAVEPOINT one"); err != nil {
				return err
			}
			if errs[i] = plain(a.f(tx)); errs[i] != nil {
				if _, err := tx.Exec("ROLLBACK TO one"); err != nil {
					if errors.Is(errs[i], ErrFull) { // which has taken all of the transaction back
						return errs[i]
					}
					return err
				}
			}
			if _, err := tx.Exec("RELEASE one"); err != nil {
				return err
			}
		}
		return tx.Commit()
	}()
	if err == nil {
		wrote := 0
		for _, e := range errs {
			if e == nil {
				wrote++
			}
		}
		s.count(wrote, time.Since(begin))
	}
	for i, a := range group {
		if errs[i] == nil && err != nil {
			errs[i] = plain(err)
		}
		a.done <- errs[i]
	}
}

// Read runs f on what is committed.
func (s *Store) Read(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return plain(err)
	}
	defer func() { _ = tx.Rollback() }()
	return plain(f(tx))
}

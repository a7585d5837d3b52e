package store

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrFull is for a disk without room.
var ErrFull = errors.New("the server's disk is full")

// What SQLite calls the errors that users hear of.
const (
	sqliteCorrupt = 11
	sqliteFull    = 13
	sqliteNotADB  = 26
	sqliteIOShm   = 10 | 19<<8 // no room for the index of the log, which lies in a file of its own
)

// plain says what an error of the database, or of a file beside it, means.
func plain(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return full()
	}
	var told *damage
	var coded interface{ Code() int }
	if errors.As(err, &coded) && !errors.As(err, &told) {
		switch code := coded.Code(); {
		case code&0xff == sqliteFull, code == sqliteIOShm:
			return full()
		case code&0xff == sqliteCorrupt, code&0xff == sqliteNotADB:
			return &damage{err}
		}
	}
	return err
}

// damage is what the database says of itself where it cannot be read.
type damage struct{ error }

func (d *damage) Error() string {
	return fmt.Sprintf("the database is damaged (%v): end the server, and run horad check with its folder", d.error)
}

func (d *damage) Unwrap() error { return d.error }

// ofCopy says what is wrong with a folder that is to be copied: no server runs there, or goes on in spite of it.
func ofCopy(dir string, err error) error {
	var d *damage
	if errors.As(plain(err), &d) {
		return fmt.Errorf("copy %s: its database is damaged (%w): take another backup; horad check %s tells what is wrong with this one", dir, d.error, dir)
	}
	return err
}

func full() error {
	return fmt.Errorf("%w: nothing new is taken until there is room; running jobs go on", ErrFull)
}

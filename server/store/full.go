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
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		switch code := coded.Code(); {
		case code&0xff == sqliteFull, code == sqliteIOShm:
			return full()
		case code&0xff == sqliteCorrupt, code&0xff == sqliteNotADB:
			return fmt.Errorf("the database is damaged (%w): end the server, and run horad check with its folder", err)
		}
	}
	return err
}

func full() error {
	return fmt.Errorf("%w: nothing new is taken until there is room; running jobs go on", ErrFull)
}

package shm

import (
	"log/slog"

	"hora/internal/secret"
)

// ListenConfig is how a process lets others of its host find it. The zero value
// works.
type ListenConfig struct {
	// Addr is the path of the socket, in a directory that only this user can enter;
	// empty: an abstract name made of random bits, which leaves nothing behind.
	Addr string
	Job  string
	Host string // this host's name, for error texts
	Log  *slog.Logger
	// Strangers hears of refused connections; nil: Log tells of them, of the first three and then once a minute.
	Strangers *secret.Strangers
}

//go:build !linux

package shm

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"hora/internal/secret"
	"hora/transport"
)

var errPlatform = &UnavailableError{errors.New("this needs Linux")}

// Listener accepts who wants to share this process's memory: on Linux only.
type Listener struct{}

// Listen fails here.
func Listen(secret.Secret, ListenConfig) (*Listener, error) { return nil, errPlatform }

// Addr is empty here.
func (*Listener) Addr() string { return "" }

// Close does nothing here.
func (*Listener) Close() error { return nil }

// Link is one rank's shared memory: on Linux only. None is ever made here.
type Link struct{}

// Open fails here.
func Open(context.Context, Config) (*Link, error) { return nil, errPlatform }

// The methods of transport.Mesh, so that programs compile.
func (*Link) Rank() int                               { return 0 }
func (*Link) Size() int                               { return 0 }
func (*Link) Hosts() []int                            { return nil }
func (*Link) HostName(int) string                     { return "" }
func (*Link) Board() *transport.Board                 { return nil }
func (*Link) Begin(transport.Stamp, time.Time)        {}
func (*Link) Send(int, []byte) error                  { return errPlatform }
func (*Link) Recv(int, []byte) error                  { return errPlatform }
func (*Link) Exchange(int, []byte, int, []byte) error { return errPlatform }
func (*Link) Explain([]byte) ([][]byte, error)        { return nil, errPlatform }
func (*Link) Tell(int, []byte) error                  { return errPlatform }
func (*Link) OnTell(func(int, []byte))                {}
func (*Link) OnFail(func(error))                      {}
func (*Link) Fail(error)                              {}
func (*Link) Counters() transport.Counters            { return transport.Counters{} }
func (*Link) Close() error                            { return nil }
func (*Link) Oversubscribed() bool                    { return false }

// Buffer is memory that every rank of the host maps: on Linux only.
type Buffer struct{}

// Buffer and Adopt fail here.
func (*Link) Buffer(context.Context, int) (*Buffer, error) { return nil, errPlatform }

func (*Link) Adopt(context.Context, unsafe.Pointer, int, int, int64) (*Buffer, error) {
	return nil, errPlatform
}

// Bytes is empty here.
func (*Buffer) Bytes() []byte { return nil }

// Close does nothing here.
func (*Buffer) Close() error { return nil }

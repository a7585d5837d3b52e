package rendezvous

import (
	"context"
	"net"
	"time"

	"hora/internal/secret"
)

// Config is a coordinator's. The zero value of every field but Secret and Size works.
type Config struct {
	Secret  secret.Secret
	Job     string
	Size    int           // how many members make an epoch
	Silence time.Duration // 0 means the constant Silence
}

// Server is a running coordinator.
type Server struct{}

// Serve runs a coordinator on ln until ctx ends or Close. It owns ln.
func Serve(ctx context.Context, ln net.Listener, cfg Config) *Server { return &Server{} }

// Report tells the coordinator what a launcher saw happen to a worker, before or better than the connection does.
func (s *Server) Report(rank int, reason string) {}

// Close ends every connection and joins the server's goroutines.
func (s *Server) Close() error { return nil }

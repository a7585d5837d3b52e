package server

import (
	"context"
	"math"

	"hora/server/client"
)

// Story is what has happened to a job; with Tail, Curves and Results it is what the pages show beside the job itself.
func (s *Server) Story(ctx context.Context, id int64) ([]client.Happening, error) {
	return s.store.Happenings(ctx, id)
}

// Tail answers the last lines of a job, and the cursor after them.
func (s *Server) Tail(ctx context.Context, id int64, lines int) ([]client.Line, string, error) {
	all, next, err := s.store.Tail(ctx, id, lines)
	return all, cursorText(next), err
}

// Curves answers a job's metrics with at most so many points of each.
func (s *Server) Curves(ctx context.Context, id int64, points int) ([]client.Metric, error) {
	return s.store.Metrics(ctx, id, "", math.MinInt64, math.MaxInt64, points)
}

// Results answers what came back of outputs/.
func (s *Server) Results(ctx context.Context, id int64) ([]client.Artifact, error) {
	return s.store.Artifacts(ctx, id)
}

package server

import (
	"context"
	"database/sql"
	"math"

	"hora/server/client"
	"hora/server/store"
)

// lastStep is the greatest step that JSON's readers tell from its neighbours.
const lastStep = 1<<53 - 1

// Report adds points of metrics to a job, whether it has ended or not: beside those that its rank 0 has reported, in
// the order in which they are given.
func (s *Server) Report(ctx context.Context, id int64, points []client.Reported) error {
	if _, err := s.Job(ctx, id); err != nil {
		return err
	}
	at := s.now().UnixMilli()
	if err := s.store.Do(ctx, func(tx *sql.Tx) error {
		// A call whose answer was lost comes again, and adds nothing then.
		if before, err := store.MadeBefore(ctx, tx); before || err != nil {
			return err
		}
		return addReported(tx, id, at, points)
	}); err != nil {
		return err
	}
	s.news.wakeLines(id)
	return nil
}

// numberOf is what a point says, which may be no number.
func numberOf(p *client.Reported) float64 {
	switch p.ValueIs {
	case "NaN":
		return math.NaN()
	case "+Inf":
		return math.Inf(1)
	case "-Inf":
		return math.Inf(-1)
	}
	return p.Value
}

func addReported(tx *sql.Tx, id, at int64, points []client.Reported) error {
	of, order := map[string][]client.Point{}, []string{}
	for i := range points {
		p := &points[i]
		before, there := of[p.Name]
		if !there {
			order = append(order, p.Name)
		}
		one := client.Point{At: at, Value: numberOf(p)}
		switch {
		case p.Step != nil:
			one.Step = *p.Step
		case there:
			one.Step = min(before[len(before)-1].Step, lastStep-1) + 1
		default:
			last, err := store.LastStep(tx, id, p.Name, 0)
			if err != nil {
				return err
			}
			one.Step = min(last, lastStep-1) + 1
		}
		of[p.Name] = append(before, one)
	}
	for _, name := range order {
		if err := store.AddPoints(tx, id, name, 0, of[name]); err != nil {
			return err
		}
	}
	return nil
}

package demo

import (
	"context"
	"errors"
	"runtime"

	"hora/launch"
)

// Compare trains with 1, 2, … o.NP processes one after another and shows what each
// further process brought.
func Compare(ctx context.Context, o Options) error {
	s := &screen{out: o.Out, term: o.Term}
	s.say("%-10s %10s %14s %10s %15s %9s", "processes", "seconds", "samples/s", "speed-up", "communication", "accuracy")
	var alone float64
	for np := 1; np <= o.NP; np++ {
		res, err := o.train(ctx, nil, np)
		if err != nil {
			return err
		}
		if res.Outcome.Kind != launch.Finished || len(res.Progress.Points) == 0 {
			return errors.New(res.Outcome.String())
		}
		last := res.Progress.Points[len(res.Progress.Points)-1]
		if np == 1 {
			alone = last.Seconds
		}
		s.say("%-10d %10.2f %14s %9.2f× %13.1f %% %7.2f %%", np, last.Seconds, thousands(last.Rate), alone/last.Seconds, last.Talk*100, last.Accuracy*100)
	}
	if n := runtime.NumCPU(); o.NP > n {
		s.say("this machine has %d cores: beyond %d processes they share them, and more processes cannot be faster", n, n)
	} else {
		s.say("a batch of %d images is small: each process has %d of them per step, so starting and summing weigh more than in a real training",
			o.WithDefaults().Batch, o.WithDefaults().Batch/o.NP)
	}
	return nil
}

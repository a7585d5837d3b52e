package demo

import (
	"context"
	"runtime"
)

// Compare trains with 1, 2, … o.NP processes one after another and shows what each
// further process brought. Its result is the last training's.
func Compare(ctx context.Context, o Options) (Result, error) {
	s := o.begin()
	s.say("the same training with %s, one after another", upTo(o.NP))
	s.say("%-9s %8s %12s %9s %14s %9s", "processes", "seconds", "samples/s", "speed-up", "communication", "accuracy")
	var res Result
	var alone float64
	for np := 1; np <= o.NP; np++ {
		var err error
		if res, err = o.train(ctx, s, round{np: np, aside: true}); err != nil || !res.finished() {
			return res, err
		}
		if err := res.verdict(); err != nil {
			return res, err
		}
		last := res.Progress.Last()
		if np == 1 {
			alone = last.Seconds
		}
		s.say("%-9d %8.2f %12s %8.2f× %12.1f %% %7.2f %%", np, last.Seconds, thousands(last.Rate), alone/last.Seconds, last.Talk*100, last.Accuracy*100)
		if busy := res.Progress.Busy(); busy != "" && np <= runtime.NumCPU() {
			s.say("  %s", busy)
		}
	}
	cores := runtime.NumCPU()
	switch {
	case o.NP > cores && len(o.Hosts) == 0:
		s.say("this machine has %s: beyond %s they take turns and cannot be faster", plural(cores, "core", "cores"), plural(cores, "process", "processes"))
	case o.NP > 1:
		s.say("a step is %d images, %d for each of %d processes: so little work that the exchange weighs more than in a real training", o.Batch, o.Batch/o.NP, o.NP)
	}
	return res, nil
}

func upTo(np int) string {
	switch np {
	case 1:
		return "1 process"
	case 2:
		return "1 and 2 processes"
	}
	return "1, 2, … " + plural(np, "process", "processes")
}

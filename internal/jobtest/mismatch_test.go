package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hora"
	"hora/tensor"
)

// spared is a mistake between ranks 0 and 1: rank 2 may have all that it needs before it
// hears of it.
const spared = "spared"

// mistakes are calls that do not fit together on three ranks, and what the error says.
var mistakes = []struct {
	name string
	call func(rank int) hora.Call
	says string
}{
	{"sum", func(rank int) hora.Call { return onFloats(hora.KindAllreduce, 4+rank/2, 4+rank/2) }, "[5] on rank 2"},
	{"type", func(rank int) hora.Call {
		if rank == 1 {
			v := tensor.Of(make([]int32, 4))
			return hora.Call{Kind: hora.KindAllreduce, Type: v.Type, Send: v, Recv: v}
		}
		return onFloats(hora.KindAllreduce, 4, 4)
	}, "int32 on rank 1"},
	{"kind", func(rank int) hora.Call {
		if rank == 0 {
			return onFloats(hora.KindBroadcast, 4, 4)
		}
		return onFloats(hora.KindAllreduce, 4, 4)
	}, "broadcast on rank 0"},
	{"broadcast", func(rank int) hora.Call { return onFloats(hora.KindBroadcast, 4+rank, 4+rank) }, "[6] on rank 2"},
	{"alltoall", func(rank int) hora.Call { return onFloats(hora.KindAlltoall, 3+3*(rank/2), 3+3*(rank/2)) }, "[6] on rank 2"},
	{"gather", func(rank int) hora.Call { return onFloats(hora.KindGather, 2+rank/2, 6) }, "[3] on rank 2"},
	{"scatter", func(rank int) hora.Call { return onFloats(hora.KindScatter, 6, 2+rank/2) }, "[3] on rank 2"},
	{"counted", func(rank int) hora.Call {
		c := onFloats(hora.KindAlltoall, 3, 3)
		if rank == 1 {
			c.SendCounts, c.RecvCounts = []int{1, 1, 1}, []int{1, 1, 1}
		}
		return c
	}, "cut by counts on rank 1"},
	{"count", func(rank int) hora.Call {
		c := onFloats(hora.KindAlltoall, 3, 3)
		c.SendCounts, c.RecvCounts = []int{1, 1, 1}, []int{1, 1, 1}
		if rank == 1 {
			c.SendCounts = []int{2, 1, 0}
		}
		return c
	}, "rank 1 sends 2 elements to rank 0, which expects 1"},
	{spared, func(rank int) hora.Call {
		c := onFloats(hora.KindAlltoall, 3, 3+rank&1)
		c.SendCounts, c.RecvCounts = []int{1, 1, 1}, []int{1 + rank&1, 1, 1}
		return c
	}, "rank 0 sends 1 elements to rank 1, which expects 2"},
	{"large count", func(rank int) hora.Call {
		const n = 200_000
		c := onFloats(hora.KindAlltoall, 3*n, 3*n)
		c.SendCounts, c.RecvCounts = []int{n, n, n}, []int{n, n, n}
		if rank == 2 {
			c.RecvCounts = []int{n - 1, n + 1, n}
		}
		return c
	}, "which expects 199999"},
}

func onFloats(kind hora.Kind, send, recv int) hora.Call {
	s, r := tensor.Of(make([]float32, send)), tensor.Of(make([]float32, recv))
	return hora.Call{Kind: kind, Type: s.Type, Send: s, Recv: r}
}

func init() {
	roles["mistakes"] = func(ctx context.Context, w *hora.World) error {
		for _, m := range mistakes {
			if err := hora.Barrier(ctx, w.Group()); err != nil {
				return err
			}
			began := time.Now()
			r := hora.Request{Call: m.call(w.Rank()), Name: "x"}
			_, _, err := w.Group().Run(&r, -1)
			var wrong *hora.MismatchError
			switch d := time.Since(began); {
			case m.name == spared && w.Rank() == 2 && err == nil:
			case !errors.As(err, &wrong) || !strings.Contains(err.Error(), m.says):
				fmt.Printf("%s: wrong: %v\n", m.name, err)
			case d > 700*time.Millisecond:
				fmt.Printf("%s: slow: %v: %v\n", m.name, d, err)
			}
			one := []float32{1}
			if err := hora.Allreduce(ctx, w.Group(), one, hora.Sum); err != nil || one[0] != 3 {
				return fmt.Errorf("after %s: %v: %w", m.name, one, err)
			}
		}
		fmt.Println("through")
		return nil
	}
}

// TestMismatchesAreFoundAtOnce: not only by the probe of a rank that has waited a second.
func TestMismatchesAreFoundAtOnce(t *testing.T) {
	links(t, func(t *testing.T, env string) {
		all := start(t, 3, "mistakes", env)
		for _, p := range all {
			text := p.until("through", 60*time.Second)
			if strings.Contains(text, "wrong: ") || strings.Contains(text, "slow: ") {
				t.Errorf("rank %d:\n%s", p.rank, text)
			}
		}
	})
}

package jobtest_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora"
	"hora/tensor"
)

// Two ranks that read each other's private memory: what becomes of one when the other ends or sleeps.

func init() {
	// peeking sums large tensors for ever. After an error nothing of the tensor stays as it was: who still reads it
	// reads what is no number.
	roles["peeking"] = func(ctx context.Context, w *hora.World) error {
		x := make([]float32, 1<<20+3)
		v := tensor.Of(x)
		for i := 0; ; i++ {
			for k := range x {
				x[k] = float32(k&15 + i&7 + w.Rank())
			}
			r := hora.Request{Call: hora.Call{Kind: hora.KindAllreduce, Type: v.Type, Send: v, Recv: v}, Name: "grad.w"}
			_, _, err := w.Group().Run(&r, -1)
			if err != nil {
				for k := range x {
					x[k] = float32(math.NaN())
				}
				fmt.Printf("error: %v\n", err)
				var line string
				fmt.Scanln(&line) // stays alive
				return w.Close()
			}
			for k := range x {
				if want := float32(2*(k&15+i&7) + 1); x[k] != want {
					return fmt.Errorf("step %d: element %d is %v, want %v", i, k, x[k], want)
				}
			}
			if i == 10 {
				fmt.Println("running")
			}
		}
	}
}

func init() {
	// exchanging gives the other rank blocks for ever, and makes of them what is no number after an error.
	roles["exchanging"] = func(ctx context.Context, w *hora.World) error {
		const block = 1<<19 + 3
		send, recv := make([]float32, 2*block), make([]float32, 2*block)
		v := tensor.Of(send)
		for i := 0; ; i++ {
			for k := range send {
				send[k] = float32(k&15 + i&7 + w.Rank())
			}
			r := hora.Request{
				Call: hora.Call{Kind: hora.KindAlltoall, Type: v.Type, Send: v, Recv: tensor.Of(recv)}, Name: "tokens",
			}
			_, _, err := w.Group().Run(&r, -1)
			if err != nil {
				for k := range send {
					send[k] = float32(math.NaN())
				}
				fmt.Printf("error: %v\n", err)
				var line string
				fmt.Scanln(&line) // stays alive
				return w.Close()
			}
			for k := range recv {
				if want := float32((w.Rank()*block+k%block)&15 + i&7 + k/block); recv[k] != want {
					return fmt.Errorf("step %d: element %d is %v, want %v", i, k, recv[k], want)
				}
			}
			if i == 10 {
				fmt.Println("running")
			}
		}
	}
}

func init() {
	// spreading broadcasts from rank 1 for ever: each of the two moves half, one by reading and the other by writing.
	// What a rank fills its memory with after an error stays there.
	roles["spreading"] = func(ctx context.Context, w *hora.World) error {
		x := make([]uint32, 1<<20+3)
		v := tensor.Of(x)
		for i := 0; ; i++ {
			clear(x)
			if w.Rank() == 1 {
				for k := range x {
					x[k] = uint32(k ^ i)
				}
			}
			r := hora.Request{Call: hora.Call{Kind: hora.KindBroadcast, Type: v.Type, Root: 1, Recv: v}, Name: "weights"}
			if w.Rank() == 1 {
				r.Call.Send = v
			}
			_, _, err := w.Group().Run(&r, -1)
			if err != nil {
				for k := range x {
					x[k] = math.MaxUint32
				}
				fmt.Printf("error: %v\n", err)
				var line string
				fmt.Scanln(&line) // stays alive
				for k := range x {
					if x[k] != math.MaxUint32 {
						return fmt.Errorf("element %d was written after the error: %d", k, x[k])
					}
				}
				return w.Close()
			}
			for k := range x {
				if x[k] != uint32(k^i) {
					return fmt.Errorf("step %d: element %d is %v, want %v", i, k, x[k], k^i)
				}
			}
			if i == 10 {
				fmt.Println("running")
			}
		}
	}
}

// peekers are the roles, and what their errors speak of.
var peekers = map[string]string{"peeking": "allreduce grad.w", "exchanging": "alltoall tokens", "spreading": "broadcast weights"}

func TestPeekingAtAProcessThatEnds(t *testing.T) {
	for role, what := range peekers {
		t.Run(role, func(t *testing.T) { peekAtTheDying(t, role, what) })
	}
}

func peekAtTheDying(t *testing.T, role, what string) {
	rounds := 2
	if os.Getenv("HORA_SOAK") != "" {
		rounds = 60
	}
	for i := range rounds {
		all := start(t, 2, role)
		for _, p := range all {
			p.until("running", 30*time.Second)
		}
		dies, lives := all[i%2], all[1-i%2]
		began := time.Now()
		dies.signal(syscall.SIGKILL)
		text := lives.until("error:", 10*time.Second)
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("rank %d learned of it after %v", lives.rank, d)
		}
		if want := fmt.Sprintf("error: %s: lost rank %d on host ", what, dies.rank); !strings.Contains(text, want) {
			t.Errorf("want %q:\n%s", want, text)
		}
		lives.tell("go")
		lives.wait(10 * time.Second)
	}
}

// TestAPeekerThatSlept is taken for lost, and wakes when the other's memory holds something
// else: it must not take that for a result.
func TestAPeekerThatSlept(t *testing.T) {
	for role, what := range peekers {
		t.Run(role, func(t *testing.T) { sleepWhilePeeking(t, role, what) })
	}
}

func sleepWhilePeeking(t *testing.T, role, what string) {
	all := start(t, 2, role, "HORA_PEER_TIMEOUT=1.5")
	for _, p := range all {
		p.until("running", 30*time.Second)
	}
	all[1].signal(syscall.SIGSTOP)
	all[0].until("error: "+what+": lost rank 1 on host ", 15*time.Second)
	all[1].signal(syscall.SIGCONT)
	text := all[1].until("error:", 15*time.Second)
	if strings.Contains(text, "failed:") {
		t.Error(text)
	}
	for _, p := range all {
		p.tell("go")
		p.wait(10 * time.Second)
	}
}

package jobtest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"hora"
	"hora/tensor"
)

// waits are the places where a rank can wait for one that ends: each runs on a group of
// its own and returns the error that ended it.
var waits = []struct {
	name  string
	named bool
	f     func(g *hora.Group, r hora.Request) error
}{
	{"inline", false, waitInline},
	{"worker", false, waitSubmitted},
	{"handed", false, waitHanded},
	{"helping", true, waitInline},
	{"named", true, waitSubmitted},
	{"named-handed", true, waitHanded},
	{"sized", true, waitSized},
	{"sized-ordered", false, waitSized},
	{"join", true, waitJoin},
	{"receive", false, waitReceive},
}

func waitInline(g *hora.Group, r hora.Request) error {
	_, _, err := g.Run(&r, -1)
	return err
}

func waitSubmitted(g *hora.Group, r hora.Request) error {
	var tk [1]hora.Ticket
	if err := g.Submit([]hora.Request{r}, tk[:]); err != nil {
		return err
	}
	_, err := g.Wait(tk[0], -1)
	return err
}

func waitHanded(g *hora.Group, r hora.Request) error {
	tk, done, err := g.Run(&r, 100*time.Microsecond)
	for !done && err == nil {
		done, err = g.Wait(tk, 50*time.Millisecond)
	}
	return err
}

func waitSized(g *hora.Group, r hora.Request) error {
	r.Kind, r.Recv = hora.KindAllgather, tensor.View{}
	r.Alloc = func(n int) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(make([]byte, n))) }
	return waitSubmitted(g, r)
}

func waitJoin(g *hora.Group, _ hora.Request) error {
	_, _, err := g.Join(-1)
	return err
}

func waitReceive(g *hora.Group, r hora.Request) error {
	r.Kind, r.Peer = hora.KindRecv, 2
	return waitSubmitted(g, r)
}

func init() {
	// ends: ranks 0 and 1 wait in every way at once for rank 2, which ends in the way
	// that the test says.
	roles["ends"] = func(ctx context.Context, w *hora.World) error {
		said := make(chan string)
		groups := make([]*hora.Group, len(waits))
		for i, wait := range waits {
			opts := []hora.GroupOption{hora.Called(wait.name)}
			if wait.named {
				opts = append(opts, hora.Named())
			}
			g, err := w.NewGroup(ctx, nil, opts...)
			if err != nil {
				return err
			}
			groups[i] = g
		}
		for i, wait := range waits {
			v := tensor.Of(make([]float32, 2))
			r := hora.Request{Call: hora.Call{Kind: hora.KindAllreduce, Type: v.Type, Send: v, Recv: v}, Name: "grad.w"}
			switch {
			case w.Rank() != 2:
				go func() { said <- fmt.Sprintf("%s: %v", wait.name, wait.f(groups[i], r)) }()
			case wait.named && wait.name != "join":
				// Something else in flight: rounds end with nothing released.
				r.Name = "other"
				if err := groups[i].Submit([]hora.Request{r}, nil); err != nil {
					return err
				}
			}
		}
		fmt.Println("waiting")
		if w.Rank() != 2 {
			for range waits {
				fmt.Println(<-said)
			}
			fmt.Println("all over")
			return nil
		}
		in := bufio.NewScanner(os.Stdin)
		in.Scan()
		switch in.Text() {
		case "exit":
			os.Exit(3)
		case "panic":
			go panic("ValueError: bad batch") // nothing deferred runs
			select {}
		case "kill":
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				return err
			}
		case "close":
			for _, g := range groups {
				go g.Close()
			}
			in.Scan() // the process stays
		}
		return nil // leaves
	}
}

// TestEndOfAPeerEndsEveryWait has a rank end in each way while the others wait for it in
// each way.
func TestEndOfAPeerEndsEveryWait(t *testing.T) {
	for _, way := range []string{"leave", "close", "exit", "panic", "kill"} {
		t.Run(way, func(t *testing.T) {
			links(t, func(t *testing.T, env string) {
				all := start(t, 3, "ends", env)
				for _, p := range all {
					p.until("waiting", 30*time.Second)
				}
				<-time.After(300 * time.Millisecond) // until the waits have gone slow
				began := time.Now()
				all[2].tell(way)
				for _, p := range all[:2] {
					text := p.until("all over", 20*time.Second)
					// Ten groups at once: a single wait is timed elsewhere.
					if d := time.Since(began); d > 2*time.Second {
						t.Errorf("rank %d waited for %v", p.rank, d)
					}
					for _, wait := range waits {
						_, line, _ := strings.Cut(text, "\n"+wait.name+": ")
						line, _, _ = strings.Cut(line, "\n")
						if !strings.Contains(line, "lost rank 2 on host ") {
							t.Errorf("rank %d: %s ended with %q", p.rank, wait.name, line)
						}
						if left := way == "leave" || way == "close"; left != strings.Contains(line, ": it has left ") {
							t.Errorf("rank %d: %s after %s: %q", p.rank, wait.name, way, line)
						}
					}
				}
			})
		})
	}
}

package hora_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"hora"
)

// Two ranks in one process, as a test of a program of yours would have them.
func Example() {
	ctx := context.Background()
	secret := hora.NewSecret()
	addr := freeAddress()

	sums := make([]float32, 2)
	var wg sync.WaitGroup
	for rank := range 2 {
		wg.Go(func() {
			w, err := hora.Join(ctx, hora.Config{Rank: rank, Size: 2, Addr: addr, Serve: true, Secret: secret})
			if err != nil {
				log.Fatal(err)
			}
			defer w.Leave(ctx)
			gradient := []float32{float32(rank + 1)}
			if err := hora.Allreduce(ctx, w.Group(), gradient, hora.Sum); err != nil {
				log.Fatal(err)
			}
			sums[rank] = gradient[0]
		})
	}
	wg.Wait()
	fmt.Println(sums)
	// Output: [3 3]
}

// TestMain makes this program a worker where ExampleJoin has started it.
func TestMain(m *testing.M) {
	if os.Getenv("EXAMPLE_WORKER") == "" {
		os.Exit(m.Run())
	}
	if err := exampleWorker(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// Two processes: this program starts itself twice, with what `hora run` would set. Each
// copy then finds its place with FromEnv; see exampleWorker.
func ExampleJoin() {
	dir, err := os.MkdirTemp("", "hora-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := dir + "/job/secret"
	if err := hora.NewSecret().WriteFile(file); err != nil {
		log.Fatal(err)
	}
	addr := freeAddress()
	program, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	var outputs [2]strings.Builder
	var ranks [2]*exec.Cmd
	for r := range ranks {
		ranks[r] = exec.Command(program)
		ranks[r].Env = append(os.Environ(), "EXAMPLE_WORKER=1", "HORA_RANK="+strconv.Itoa(r), "HORA_SIZE=2",
			"HORA_ADDR="+addr, "HORA_SERVE=1", "HORA_SECRET_FILE="+file)
		ranks[r].Stdout, ranks[r].Stderr = &outputs[r], os.Stderr
		if err := ranks[r].Start(); err != nil {
			log.Fatal(err)
		}
	}
	for r := range ranks {
		if err := ranks[r].Wait(); err != nil {
			log.Fatal(err)
		}
		fmt.Print(outputs[r].String())
	}
	// Output:
	// rank 0 of 2: mean [1.5 10]
	// rank 1 of 2: mean [1.5 10]
}

// exampleWorker is what each process of ExampleJoin does.
func exampleWorker(ctx context.Context) error {
	cfg, err := hora.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	w, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	x := []float64{float64(w.Rank() + 1), 10}
	if err := hora.Allreduce(ctx, w.Group(), x, hora.Average); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: mean %v\n", w.Rank(), w.Size(), x)
	return w.Leave(ctx)
}

// Operations that are matched by name may be submitted in any order, and waited for
// later.
func ExampleNamed() {
	ctx := context.Background()
	w, err := hora.Join(ctx, hora.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Leave(ctx)
	g, err := w.NewGroup(ctx, nil, hora.Named())
	if err != nil {
		log.Fatal(err)
	}
	bias, weight := []float32{1}, []float32{2, 3}
	tickets := make([]hora.Ticket, 2)
	err = g.Submit([]hora.Request{
		hora.AllreduceRequest("bias", bias, hora.Sum),
		hora.AllreduceRequest("weight", weight, hora.Sum),
	}, tickets)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range tickets {
		if _, err := g.Wait(t, -1); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(bias, weight)
	// Output: [1] [2 3]
}

// Every group has a half whose operations are matched by name: here beside the world's own group, in which the order of
// the calls is the order.
func ExampleGroup_ByName() {
	ctx := context.Background()
	w, err := hora.Join(ctx, hora.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Leave(ctx)
	g, err := w.Group().ByName(ctx)
	if err != nil {
		log.Fatal(err)
	}
	loss := []float64{0.5}
	r := hora.AllreduceRequest("loss", loss, hora.Average)
	if _, _, err := g.Run(&r, -1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(g.Name(), g.Named(), loss)
	// Output: world (named) true [0.5]
}

// A sum goes on while the caller computes; what it was given is left alone until Wait has returned.
func ExampleAllreduceAsync() {
	ctx := context.Background()
	w, err := hora.Join(ctx, hora.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Leave(ctx)
	gradients := [][]float32{{1, 2}, {3}}
	sums := make([]*hora.Pending, len(gradients))
	for i, g := range gradients {
		if sums[i], err = hora.AllreduceAsync(w.Group(), g, hora.Average); err != nil {
			log.Fatal(err)
		}
	}
	// … other work …
	for _, s := range sums {
		if err := s.Wait(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(gradients)
	// Output: [[1 2] [3]]
}

// Memory that the other ranks of the host can read is reduced where it lies.
func ExampleBufferOf() {
	ctx := context.Background()
	w, err := hora.Join(ctx, hora.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Leave(ctx)
	weights, err := hora.BufferOf[float32](ctx, w.Group(), 4)
	if err != nil {
		log.Fatal(err)
	}
	for i := range weights {
		weights[i] = float32(i)
	}
	if err := hora.Allreduce(ctx, w.Group(), weights, hora.Sum); err != nil {
		log.Fatal(err)
	}
	fmt.Println(weights)
	// Output: [0 1 2 3]
}

// freeAddress is a port that nobody uses at the moment; a launcher picks it in earnest.
func freeAddress() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

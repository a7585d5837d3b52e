// Command 64-go-images trains on a folder of images in Go alone: what lies in each folder
// is a class, every rank gets its part of each batch, and images are decoded on the cores
// that the training leaves. What is learnt is how light the images of a class are.
//
//	go build -o /tmp/images ./examples/64-go-images && hora run -np 2 /tmp/images FOLDER
//
// It runs in one goroutine; the dataset's own read and decode.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"hora"
	"hora/dataset"
	"hora/dataset/plan"
	"hora/dataset/source"
)

const (
	batch  = 32 // of all ranks together
	epochs = 3
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "64-go-images: name a folder with images in folders, as in hora run -np 2 /tmp/images data/train")
		os.Exit(2)
	}
	if err := train(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func train(ctx context.Context, folder string) error {
	cfg, err := hora.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	world, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer world.Close()
	g := world.Group()
	set, err := dataset.Open(ctx, dataset.Config{
		Source: []string{folder}, Seed: 1, Lookup: os.Getenv,
		Fields: []dataset.Want{{Name: "image", Columns: []string{"image"}}, {Name: "label", Columns: []string{"label"}}},
	})
	if err != nil {
		return err
	}
	defer set.Close()
	classes := 2
	sums, err := hora.BufferOf[float64](ctx, g, 2*classes) // light and number of images of each class
	if err != nil {
		return err
	}
	light := make([]float64, classes)
	for epoch := range uint64(epochs) {
		r, err := set.Read(dataset.Walk{Epoch: epoch, Rank: g.Rank(), Size: g.Size(), Batch: batch, Last: plan.Drop})
		if err != nil {
			return err
		}
		right, all := 0.0, 0.0
		for {
			b, err := r.Next(time.Second)
			if errors.Is(err, dataset.ErrNotYet) {
				continue
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			clear(sums)
			hits, err := look(b, r.Layout(), light, sums)
			if err != nil {
				return err
			}
			right, all = right+float64(hits), all+float64(b.Rows)
			b.Release()
			if err := hora.Allreduce(ctx, g, sums, hora.Sum); err != nil {
				return err
			}
			for c := range classes {
				if n := sums[2*c+1]; n > 0 {
					light[c] += (sums[2*c]/n - light[c]) / 2
				}
			}
		}
		r.Close()
		if g.Rank() == 0 {
			fmt.Printf("epoch %d: %.0f %% of rank 0's images told apart; classes are %.0f and %.0f light\n", epoch+1, 100*right/all, light[0], light[1])
		}
	}
	return world.Leave(ctx)
}

// look decodes a batch's images, adds how light they are to sums, and counts those that
// are nearest to their own class.
func look(b *dataset.Batch, fields []dataset.Field, light, sums []float64) (hits int, err error) {
	labels := dataset.View[int64](b, &fields[1])
	var pixels []byte
	for i, label := range labels {
		if pixels, _, _, err = source.RGB(b.Item(&fields[0], i), pixels); err != nil {
			return 0, err
		}
		sum := 0
		for _, v := range pixels {
			sum += int(v)
		}
		mean := float64(sum) / float64(len(pixels))
		sums[2*label] += mean
		sums[2*label+1]++
		nearest := int64(0)
		if (mean-light[1])*(mean-light[1]) < (mean-light[0])*(mean-light[0]) {
			nearest = 1
		}
		if nearest == label {
			hits++
		}
	}
	return hits, nil
}

package hora_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"hora"
)

func init() {
	// maker makes a group that rank 1 never comes to: it waits for a line, and leaves.
	roles["maker"] = func(ctx context.Context, w *hora.World) error {
		if err := hora.Barrier(ctx, w.Group()); err != nil {
			return err
		}
		fmt.Println("making")
		if w.Rank() == 1 {
			bufio.NewScanner(os.Stdin).Scan()
			return nil
		}
		for _, when := range []string{"meanwhile", "afterwards"} {
			_, err := w.NewGroup(ctx, nil, hora.Named())
			var lost *hora.PeerLostError
			fmt.Printf("%s: %v %v\n", when, errors.As(err, &lost), err)
		}
		_, err := w.NewGroup(ctx, []int{0, 2})
		fmt.Printf("without it: %v\n", err)
		return nil
	}
}

// TestAGroupIsNotMadeWithALostRank: whoever makes it hears of the loss, instead of waiting
// for StartTimeout, and groups of the others are made as before.
func TestAGroupIsNotMadeWithALostRank(t *testing.T) {
	for name, end := range map[string]func(p *process){
		"killed": func(p *process) { p.signal(syscall.SIGKILL) },
		"left":   func(p *process) { p.tell("leave") },
	} {
		t.Run(name, func(t *testing.T) {
			links(t, func(t *testing.T, env string) {
				if name == "left" && env == "HORA_LINKS=tcp" {
					return // connections are made when they are needed
				}
				all := start(t, 3, "maker", env, "HORA_START_TIMEOUT=60")
				for _, p := range all {
					p.until("making", 30*time.Second)
				}
				end(all[1])
				for _, r := range []int{0, 2} {
					all[r].until("without it: <nil>", 20*time.Second)
					all[r].until("lost rank 1 on host ", time.Second)
					for _, when := range []string{"afterwards", "meanwhile"} {
						if when == "meanwhile" && env == "HORA_LINKS=tcp" {
							break // it may have been connected before
						}
						all[r].until(when+": true make group of all ranks: ", time.Second)
					}
				}
			})
		})
	}
}

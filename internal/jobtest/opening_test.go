package jobtest_test

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
		g, err := w.NewGroup(ctx, []int{0, 2})
		if err == nil {
			err = hora.Barrier(ctx, g)
		}
		fmt.Printf("without it: %v\n", err)
		return nil
	}
}

// TestAGroupIsNotMadeWithALostRank: whoever makes it hears of the loss, instead of waiting
// for StartTimeout, and groups of the others are made as before. (By TCP it may be made
// before anybody knows: connections wait in the kernel.)
func TestAGroupIsNotMadeWithALostRank(t *testing.T) {
	for name, end := range map[string]func(p *process){
		"killed": func(p *process) { p.signal(syscall.SIGKILL) },
		"left":   func(p *process) { p.tell("leave") },
	} {
		t.Run(name, func(t *testing.T) {
			all := start(t, 3, "maker", "HORA_START_TIMEOUT=60")
			for _, p := range all {
				p.until("making", 30*time.Second)
			}
			end(all[1])
			for _, r := range []int{0, 2} {
				all[r].until("without it: <nil>", 20*time.Second)
				all[r].until("lost rank 1 on host ", time.Second)
				for _, when := range []string{"meanwhile", "afterwards"} {
					all[r].until(when+": true make group of all ranks: ", time.Second)
				}
			}
		})
	}
}

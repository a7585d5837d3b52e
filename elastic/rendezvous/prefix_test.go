package rendezvous

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// play is the course of a job: it grows by one worker after another, one is asked to leave and comes again, and one is
// killed and comes again.
func (s *scene) play() error {
	steps := []struct {
		what string
		do   func()
		size int
	}{
		{"begin", func() { s.start(0) }, 1},
		{"a second", func() { s.start(1) }, 2},
		{"two more", func() { s.start(2); s.start(3) }, 4},
		{"one is asked to leave", func() { s.tell(Order{Kind: OrderDrain, Rank: 2, Process: s.hands[2].process, Reason: "asked"}) }, 3},
		{"another in its place", func() { s.start(2) }, 4},
		{"one is killed", func() { s.kill(1) }, 3},
		{"another in its place", func() { s.start(1) }, 4},
	}
	for _, step := range steps {
		s.order(func() { s.note("%s", step.what); step.do() })
		if err := s.formed(step.size, 30*time.Second); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// TestEveryPrefixOfTheJournal kills the coordinator, alone or with its launcher, after each record of its journal: the
// job goes on from there.
func TestEveryPrefixOfTheJournal(t *testing.T) {
	records := 0
	t.Run("whole", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t.TempDir())
			defer s.close()
			if err := s.serve(true, func(*life) { records++ }); err != nil {
				t.Fatal(err)
			}
			s.wg.Go(s.tick)
			if err := s.play(); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Logf("%d records", records)
	for _, launcher := range []bool{false, true} {
		for how, wait := range map[string]time.Duration{"unacted": 0, "untold": 1, "told": 3 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s/%v", how, launcher), func(t *testing.T) {
				every := 1
				if testing.Short() {
					every = 6
				}
				for k := 1; k <= records; k += every {
					synctest.Test(t, func(t *testing.T) {
						if err := cutAt(t.TempDir(), k, wait, launcher); err != nil {
							t.Errorf("after record %d: %v", k, err)
						}
					})
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}

// cutAt plays with a coordinator that is killed after its record k.
func cutAt(dir string, k int, wait time.Duration, launcher bool) error {
	s := newScene(dir)
	defer s.close()
	n := 0
	err := s.serve(true, func(l *life) {
		if n++; n != k {
			return
		}
		if wait == 0 {
			s.fall(l, launcher)
			runtime.Goexit()
		}
		s.wg.Go(func() {
			time.Sleep(wait)
			s.fall(l, launcher)
		})
	})
	if err != nil {
		return err
	}
	s.wg.Go(s.tick)
	s.wg.Go(func() {
		for {
			select {
			case <-s.done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			s.mu.Lock()
			gone := s.now == nil
			s.mu.Unlock()
			if gone {
				if err := s.rise(nil); err != nil {
					s.fault("%v", err)
				}
				return
			}
		}
	})
	return s.play()
}

// TestOrdersComeLate: what the launcher says goes another way than what workers say, and may come after it.
func TestOrdersComeLate(t *testing.T) {
	for _, late := range []int{5, 12, 14, 16, 18, 20, 22, 25, 28, 30, 35, 40, 50, 100, 1500} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t.TempDir())
			defer s.close()
			s.late = func() time.Duration { return time.Duration(late) * time.Millisecond }
			if err := s.serve(true, nil); err != nil {
				t.Fatal(err)
			}
			s.wg.Go(s.tick)
			if err := s.play(); err != nil {
				t.Errorf("by %d ms: %v", late, err)
			}
		})
	}
}

var sceneSeed = flag.Int64("scene-seed", -1, "the one history of a job in small to play; -1 plays many")

// TestJobHistories plays jobs in which everything is late by chance, and coordinators and launchers are killed at any
// moment: a world of all that are there always forms.
func TestJobHistories(t *testing.T) {
	first, last := int64(0), int64(150)
	if testing.Short() {
		last = 10 // the race detector makes them slow
	}
	if *sceneSeed >= 0 {
		first, last = *sceneSeed, *sceneSeed+1
	}
	for seed := first; seed < last; seed++ {
		synctest.Test(t, func(t *testing.T) {
			if err := jobHistory(t.TempDir(), seed); err != nil {
				t.Errorf("%v\nplay it again with: go test ./elastic/rendezvous -run TestJobHistories -scene-seed %d", err, seed)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// chance draws for several goroutines.
type chance struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func (c *chance) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.Intn(n)
}

// upTo returns a time up to most, and now and then one up to rarely.
func (c *chance) upTo(most, rarely time.Duration) func() time.Duration {
	return func() time.Duration {
		if c.n(12) == 0 {
			return time.Duration(c.n(int(rarely)))
		}
		return time.Duration(c.n(int(most)))
	}
}

func jobHistory(dir string, seed int64) error {
	c := &chance{rnd: rand.New(rand.NewSource(seed))}
	s := newScene(dir)
	defer s.close()
	s.lag = c.upTo(2*time.Millisecond, 200*time.Millisecond)
	s.late = c.upTo(5*time.Millisecond, time.Second)
	s.slow = c.upTo(50*time.Millisecond, time.Second)
	if err := s.serve(true, nil); err != nil {
		return err
	}
	s.wg.Go(s.tick)
	s.wg.Go(func() { s.harm(c) })
	s.order(func() { s.start(0) })
	if err := s.formed(1, 40*time.Second); err != nil {
		return err
	}
	for range 12 {
		size := 0
		s.order(func() { size = s.turn(c) })
		if c.n(3) == 0 {
			time.Sleep(time.Duration(c.n(int(time.Second))))
			continue // the next turn comes before this one is over
		}
		if err := s.formed(size, 40*time.Second); err != nil {
			return err
		}
	}
	return s.formed(-1, 40*time.Second)
}

// turn has a worker come, leave or die, and returns how many there will be.
func (s *scene) turn(c *chance) int {
	staying := map[int]bool{}
	for rank, h := range s.hands {
		if !h.killed.Load() && !h.asked {
			staying[rank] = true
		}
	}
	ranks := slices.Sorted(maps.Keys(staying))
	switch pick := c.n(5); {
	case pick < 3 || len(ranks) < 3:
		rank := 0
		for s.hands[rank] != nil {
			rank++
		}
		if rank < 6 {
			s.note("rank %d is started", rank)
			s.start(rank)
			return len(ranks) + 1
		}
		return len(ranks)
	case pick == 3:
		rank := ranks[c.n(len(ranks))]
		s.note("rank %d is asked to leave", rank)
		s.hands[rank].asked = true
		s.tell(Order{Kind: OrderDrain, Rank: rank, Process: s.hands[rank].process, Reason: "asked"})
	default:
		rank := ranks[c.n(len(ranks))]
		s.note("rank %d is killed", rank)
		s.kill(rank)
	}
	return len(ranks) - 1
}

// harm kills coordinators, alone or with their launcher.
func (s *scene) harm(c *chance) {
	for range c.n(8) {
		select {
		case <-s.done:
			return
		case <-time.After(time.Duration(c.n(int(4 * time.Second)))):
		}
		s.mu.Lock()
		l := s.now
		s.mu.Unlock()
		s.fall(l, c.n(2) == 0)
		for gone := false; !gone; {
			select {
			case <-s.done:
				return
			case <-time.After(time.Duration(1 + c.n(int(time.Second)))):
			}
			s.mu.Lock()
			gone = s.now == nil
			s.mu.Unlock()
		}
		if err := s.rise(nil); err != nil {
			s.fault("%v", err)
			return
		}
	}
}

// TestWhoWasLetInIsNotForgotten: a Join that was held for long enough is let in without anybody's word. That is in the
// journal too: the next coordinator knows the epoch that has opened by it.
func TestWhoWasLetInIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t.TempDir())
		defer s.close()
		if err := s.serve(true, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var epochs [2]Epoch
		var clients [2]*Client
		join := func(i int) {
			e, _ := clients[i].Join(ctx, Member{Host: "h"})
			s.mu.Lock()
			epochs[i] = e
			s.mu.Unlock()
		}
		for i, process := range []string{"1", "2"} { // two as one rank, and nobody says that the first has ended
			c, err := dialBy(ctx, "scene", s.dial, s.key, Hello{Job: "job", Rank: 0, Size: 1, Host: "h", Process: process})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients[i] = c
			s.wg.Go(func() { join(i) })
			time.Sleep(5 * time.Second)
		}
		s.wg.Go(func() { join(0) })
		time.Sleep(time.Second)
		s.mu.Lock()
		s.epoch = 0
		l := s.now
		s.mu.Unlock()
		s.fall(l, true)
		time.Sleep(time.Second)
		if err := s.rise(nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.epoch != 2 || s.size != 2 || epochs[0].Number != 2 || epochs[1].Number != 2 {
			t.Errorf("the next coordinator knows epoch %d of %d, and the workers are in %d and %d", s.epoch, s.size, epochs[0].Number, epochs[1].Number)
		}
	})
}

// TestWhatALossCostIsHeardByTheNextLauncher: nobody answers that word, so that a launcher which dies as it comes, or
// before it has come, would leave its heir's report without it.
func TestWhatALossCostIsHeardByTheNextLauncher(t *testing.T) {
	for _, first := range []bool{true, false} { // the word, and then the deaths, or the other way round
		t.Run(fmt.Sprintf("said before %v", first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t.TempDir())
				defer s.close()
				if err := s.serve(true, nil); err != nil {
					t.Fatal(err)
				}
				c, err := dialBy(t.Context(), "scene", s.dial, s.key, Hello{Job: "job", Size: 1, Host: "h", Process: "1"})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				e, err := c.Join(t.Context(), Member{Host: "h"})
				if err != nil {
					t.Fatal(err)
				}
				cost := Recovery{Epoch: e.Number, Took: time.Second, Steps: 3}
				if first {
					c.Recovered(cost)
					time.Sleep(time.Second)
				}
				s.mu.Lock()
				l := s.now
				s.mu.Unlock()
				s.fall(l, true)
				time.Sleep(time.Second)
				if first {
					c.Close() // its worker does not live to say it again
				} else {
					c.Recovered(cost)
				}
				if err := s.rise(nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				s.mu.Lock()
				defer s.mu.Unlock()
				if !slices.Contains(s.costs, cost) {
					t.Errorf("the next launcher has heard %v", s.costs)
				}
			})
		})
	}
}

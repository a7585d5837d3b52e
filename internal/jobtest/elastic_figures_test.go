package jobtest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hora/elastic"
	"hora/internal/hosttest"
)

// heardAt is when a rank said something since at, in milliseconds; below 0 when it did not.
func (j *elasticJob) heardAt(rank int, at time.Time, wants ...string) float64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.out.String()) {
		f := strings.SplitN(line, " ", 3)
		if len(f) < 3 || f[1] != strconv.Itoa(rank) {
			continue
		}
		n, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil || n < at.UnixNano() {
			continue
		}
		if slices.ContainsFunc(wants, func(w string) bool { return strings.HasPrefix(f[2], w) }) {
			return float64(n-at.UnixNano()) / 1e6
		}
	}
	return -1
}

func spread(ms []float64) string {
	slices.Sort(ms)
	if len(ms) == 0 {
		return "none"
	}
	return fmt.Sprintf("median %.0f ms, worst %.0f ms of %d", ms[len(ms)/2], ms[len(ms)-1], len(ms))
}

// TestWhatALossCostsOnTwoHosts kills one of four workers on two hosts again and again.
func TestWhatALossCostsOnTwoHosts(t *testing.T) {
	kills := 5
	switch {
	case os.Getenv("HORA_SOAK") == "1":
		kills = 50
	case testing.Short():
		t.Skip("takes long")
	}
	n := hosttest.Up(t, "a", "b")
	draw := rand.New(rand.NewPCG(7, 7))
	j := startOnHosts(t, n.Hosts[0], hostsPlan{NP: 4, Restarts: 1000, OnLoss: elastic.Replace, Hosts: "a:2,b:2"}, "STEPS=100000000", "EVERY=1", "SLOW=1")
	var near, far, again []float64
	for i := range kills {
		j.until("all at work", 40*time.Second, func() bool { return j.said(fmt.Sprintf("sum in epoch %d\n", i+1)) == 4 && len(j.pids) == 4 })
		pause(time.Duration(20+draw.IntN(30)) * time.Millisecond)
		victim := draw.IntN(4)
		at := j.kill(victim, draw)
		next := fmt.Sprintf("sum in epoch %d", i+2)
		j.until("the next epoch", 40*time.Second, func() bool { return j.said(next+"\n") == 4 })
		worst := 0.0
		for rank := range 4 {
			if rank == victim {
				continue
			}
			ms := j.heardAt(rank, at, "error ", "news ")
			if ms < 0 {
				t.Fatalf("rank %d did not hear of it\n%s", rank, j.text())
			}
			if rank/2 == victim/2 {
				near = append(near, ms)
			} else {
				far = append(far, ms)
			}
			worst = max(worst, j.heardAt(rank, at, next))
		}
		again = append(again, worst)
	}
	t.Logf("kill -9 of one of 4 workers on two hosts → the error on the same host: %s", spread(near))
	t.Logf("… on the other host: %s", spread(far))
	t.Logf("… → the first sum of the next epoch on all survivors, the replacement's start included: %s", spread(again))
	if middle(near) > 3*100 || middle(far) > 3*100 || slices.Max(near) > 3*1000 || slices.Max(far) > 3*1000 ||
		middle(again) > 3*2000 {
		t.Error("that is late")
	}
}

// TestACutHostAndANewcomer measures a host that is cut without a word, and one that comes.
func TestACutHostAndANewcomer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	rounds := 1
	if os.Getenv("HORA_SOAK") == "1" {
		rounds = 10
	}
	n := hosttest.Up(t, "a", "b")
	s := &soak{t: t, net: n}
	s.hosts("a:2\nb:1\n")
	const timeout = 2 * time.Second
	s.job = startOnHosts(t, n.Hosts[0], hostsPlan{
		NP: 3, Min: 1, OnLoss: elastic.Continue, Discover: "hosts", Silence: timeout, Cool: 2 * time.Second,
	}, "STEPS=100000000", "EVERY=1", "SLOW=1")
	j := s.job
	j.until("three at work", 40*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 3 })
	var known, again, came []float64
	for range rounds {
		pause(100 * time.Millisecond)
		at := time.Now()
		n.Hosts[1].Cable(false)
		j.until("two go on", 40*time.Second, func() bool {
			return len(j.momentsHeld("reset size 2", at)) == 2 && len(j.momentsHeld("sum in epoch", at)) >= 2
		})
		err, sum := 0.0, 0.0
		for rank := range 2 {
			err, sum = max(err, j.heardAt(rank, at, "error ", "news ")), max(sum, j.heardAt(rank, at, "sum in "))
		}
		known, again = append(known, err), append(again, sum-err)
		back := time.Now()
		n.Hosts[1].Cable(true)
		j.until("three again", 60*time.Second, func() bool { return len(j.momentsHeld("reset size 3", back)) >= 2 })
		j.mu.Lock()
		announced := j.momentsHeld("started rank", back)
		j.mu.Unlock()
		came = append(came, slices.Max(j.moments("reset size 3", back))-slices.Max(announced))
	}
	t.Logf("cut without a word → the error, with a peer timeout of %v: %s", timeout, spread(known))
	t.Logf("… → the first sum of the others, after that: %s", spread(again))
	t.Logf("a newcomer's process starts → it takes part: %s", spread(came))
	if middle(known) > 3*3000 || middle(again) > 3*2000 || middle(came) > 3*1000 {
		t.Error("that is late")
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// askers submit at once, each its own jobs one after the other, with a key for each that it sends until it is answered.
type askers struct {
	*site
	api      *client.Client // the site's own is another after each start
	ledger   string         // each job adds a line
	inflight atomic.Int64
	mu       sync.Mutex       // guards acked
	acked    map[string]int64 // the job that a key was answered with
	broken   atomic.Int64     // requests whose answer was lost
}

// ask submits one job. The site's client would send it again by itself: here each try is seen.
func (a *askers) ask(key string) {
	d := shell(1, "echo $HORA_SERVER_JOB.$HORA_SERVER_ATTEMPT >>"+a.ledger)
	d.Spec.Name = key
	end := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		a.inflight.Add(1)
		j, err := a.api.Submit(ctx, d, key)
		a.inflight.Add(-1)
		cancel()
		if err == nil {
			a.mu.Lock()
			if was := a.acked[key]; was != 0 && was != j.ID {
				a.t.Errorf("key %s was answered with jobs %d and %d", key, was, j.ID)
			}
			a.acked[key] = j.ID
			a.mu.Unlock()
			return
		}
		a.broken.Add(1)
		var gone *client.NoServer
		if !errors.As(err, &gone) || time.Now().After(end) {
			a.t.Errorf("submit with key %s: %v", key, err)
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// TestAKilledServerWithSubmissionsInFlight kills the server while many submit: each key makes one job, which is there
// and runs once, whether its answer came before the kill, was lost with it, or came after.
func TestAKilledServerWithSubmissionsInFlight(t *testing.T) {
	kills, seed := 3, uint64(time.Now().UnixNano())
	if os.Getenv("HORA_SOAK") == "1" {
		kills = 100
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	s := newSite(t, 8)
	s.kill()
	s.port = s.url[strings.LastIndex(s.url, ":")+1:]
	s.up()
	a := &askers{site: s, api: s.client, ledger: filepath.Join(t.TempDir(), "ledger"), acked: map[string]int64{}}
	caught, keys := 0, 0
	for round := 0; caught < kills; round++ {
		if round > 20*kills {
			t.Fatalf("%d kills, and only %d met a submission", round, caught)
		}
		var wg sync.WaitGroup
		for who := range 8 {
			wg.Go(func() {
				for n := range 2 {
					a.ask(fmt.Sprintf("%d-%d-%d", round, who, n))
				}
			})
		}
		keys += 16
		<-time.After(time.Duration(rng.IntN(12_000)) * time.Microsecond)
		if a.inflight.Load() > 0 {
			caught++
		}
		s.kill()
		s.up()
		wg.Wait()
	}
	for key, id := range a.acked {
		j := s.until(id, ended)
		if j.State != job.Finished || j.Document.Spec.Name != key {
			t.Errorf("job %d of key %s: %s %q, called %q", id, key, j.State, j.Text, j.Document.Spec.Name)
		}
	}
	a.once(keys)
	t.Logf("%d kills with submissions in flight, %d jobs, %d calls broke", caught, keys, a.broken.Load())
}

// once sees to it that there is a job a key and no other, and that each ran once.
func (a *askers) once(keys int) {
	a.t.Helper()
	cursor, n := "", 0
	for {
		p, err := a.api.Jobs(context.Background(), nil, "", cursor, 1000)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, j := range p.Jobs {
			if n++; a.acked[j.Document.Spec.Name] != j.ID {
				a.t.Errorf("job %d of key %s was never answered; the key's answer was %d", j.ID, j.Document.Spec.Name, a.acked[j.Document.Spec.Name])
			}
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	if n != keys || len(a.acked) != keys {
		a.t.Errorf("%d keys were sent, %d answered, and there are %d jobs", keys, len(a.acked), n)
	}
	b, err := os.ReadFile(a.ledger)
	if err != nil {
		a.t.Fatal(err)
	}
	ran := map[int64]int{}
	for line := range bytes.Lines(b) {
		id, attempt, _ := strings.Cut(strings.TrimSpace(string(line)), ".")
		number, _ := strconv.ParseInt(id, 10, 64)
		if ran[number]++; ran[number] > 1 || attempt != "1" {
			a.t.Errorf("job %s ran %d times, attempt %s", id, ran[number], attempt)
		}
	}
	if len(ran) != keys {
		a.t.Errorf("%d jobs ran of %d", len(ran), keys)
	}
}

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
	"hora/server/store"
)

// resident is a process' memory in MiB, and peak the most that it has had.
func resident(t *testing.T, pid int) int { return memoryOf(t, pid, "VmRSS:") }

func peak(t *testing.T, pid int) int { return memoryOf(t, pid, "VmHWM:") }

func memoryOf(t *testing.T, pid int, what string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), what)
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

// page times a page of the server's, which a browser that is let in asks for: the median of five.
func (s *site) page(path string) time.Duration {
	s.t.Helper()
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar}
	get := func(path string) time.Duration {
		begin := time.Now()
		r, err := browser.Get(s.url + path)
		if err != nil {
			s.t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != 200 || !strings.Contains(string(b), "</html>") && !strings.Contains(path, "token=") {
			s.t.Fatalf("%s: %s, %v, %.200s", path, r.Status, err, b)
		}
		return time.Since(begin)
	}
	get("/?token=" + s.client.Token)
	var all []time.Duration
	for range 5 {
		all = append(all, get(path))
	}
	slices.Sort(all)
	return all[2]
}

// filled writes rows into the store of a server that is down.
func (s *site) filled(n int, write func(tx *sql.Tx, i int) error) {
	s.t.Helper()
	st, err := store.Open(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	defer st.Close()
	for from := 0; from < n; from += 100 {
		err := st.Do(context.Background(), func(tx *sql.Tx) error {
			for i := from; i < min(n, from+100); i++ {
				if err := write(tx, i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestALongQueue measures the queue's page, memory and a restart with 100,000 jobs that wait and 1,000 nodes of which a
// server knows that is started again; a small part of them in the ordinary run, which holds it to their number and to
// what the pages say of them.
func TestALongQueue(t *testing.T) {
	n, nodes := 1600, 50
	if os.Getenv("HORA_SOAK") == "1" {
		n, nodes = 100_000, 1000
	}
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	blocker := s.submit(shell(1, "sleep 1000"))
	s.until(blocker.ID, in(job.Running))
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range n / 16 {
				if _, err := s.client.Submit(context.Background(), shell(1, "true"), client.Key()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	want := n / 16 * 16
	if a, err := s.client.About(context.Background()); err != nil || a.Queued != want {
		t.Errorf("%d jobs wait of %d: %v", a.Queued, want, err)
	}
	t.Logf("%d jobs wait: the queue's page takes %v, the server has %d MiB", want, s.page("/"), resident(t, s.cmd.Process.Pid))
	get, _, _ := s.browser(s.client.Token)
	for path, has := range map[string][]string{
		"/":      {fmt.Sprintf("Waiting <small>%d</small>", want), "Running <small>1</small>", `href="/jobs/2"`, "These are the first 500."},
		"/pools": {fmt.Sprintf("1 run, %d wait", want), `href="/jobs/2"`, "These are the first 1000."},
	} {
		code, text := get(path)
		for _, x := range has {
			if code != 200 || !strings.Contains(text, x) {
				t.Errorf("%s: %d, and nowhere %q", path, code, x)
			}
		}
	}
	s.kill()
	s.joinedBefore(nodes)
	begin := time.Now()
	s.up()
	if a, err := s.client.About(context.Background()); err != nil || a.Queued != want {
		t.Errorf("after a restart %d jobs wait of %d: %v", a.Queued, want, err)
	}
	took := time.Since(begin)
	if all, err := s.client.Nodes(context.Background()); err != nil || len(all) != nodes+1 {
		t.Errorf("it knows of %d nodes, and not of %d: %v", len(all), nodes+1, err)
	}
	t.Logf("killed, and answering again after %v, with %d nodes; then the queue's page takes %v, that of nodes %v, and it has %d MiB",
		took, nodes+1, s.page("/"), s.page("/nodes"), resident(t, s.cmd.Process.Pid))
}

// joinedBefore writes nodes of pool lab into the store of a server that is down: the next one waits for them.
func (s *site) joinedBefore(n int) {
	s.t.Helper()
	all := map[string]store.Node{}
	for i := range n {
		all[fmt.Sprint("lab-", i)] = store.Node{Pool: "lab", Slots: 8, Memory: 32 << 30}
	}
	s.filled(1, func(tx *sql.Tx, _ int) error { return store.SetNodes(tx, all) })
}

// TestManyRuns measures pages over runs with many metrics: 1,000 with 25 of 2,000 points, ten of them in the ordinary
// run.
func TestManyRuns(t *testing.T) {
	runs := 10
	if os.Getenv("HORA_SOAK") == "1" {
		runs = 1000
	}
	s := newSite(t, 1)
	if r := s.hora("down"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	_ = s.cmd.Wait()
	d := shell(1, "true")
	fifty := 50
	d.Project, d.Pool, d.Priority = "default", "default", &fifty
	document, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	points := make([]client.Point, 2000)
	begin := time.Now()
	s.filled(runs, func(tx *sql.Tx, i int) error {
		j := client.Job{State: job.Queued, Queued: now, User: "me", Document: d}
		var err error
		if j.ID, err = store.NewJob(tx, &j, document); err != nil {
			return err
		}
		for m := range 25 {
			for k := range points {
				value := math.Sin(float64(i + m + k))
				points[k] = client.Point{Step: int64(k), At: now.UnixMilli() + int64(k), Value: value}
			}
			if err := store.AddPoints(tx, j.ID, fmt.Sprintf("metric%02d", m), 0, points); err != nil {
				return err
			}
		}
		j.State, j.Started, j.Ended = job.Finished, now, now.Add(time.Minute)
		return store.SetState(tx, &j)
	})
	wrote := time.Since(begin)
	s.up()
	all := "/compare?"
	for i := range min(runs, 50) {
		all += fmt.Sprintf("job=%d&", runs-i)
	}
	st, err := os.Stat(filepath.Join(s.dir, store.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d runs of 25 metrics with 2,000 points: the store takes %.0f points/s (%d MiB); a run's page %v, %d compared %v, the list %v",
		runs, float64(runs)*50_000/wrote.Seconds(), st.Size()>>20, s.page(fmt.Sprintf("/jobs/%d", runs)), min(runs, 50),
		s.page(strings.TrimSuffix(all, "&")), s.page("/"))
	metrics, err := s.client.Metrics(context.Background(), int64(runs), "metric07", 100)
	if err != nil || len(metrics) == 0 {
		t.Errorf("the points of metric07: %d, %v", len(metrics), err)
	}
}

// TestLinesWithFollowers measures how late 20 followers see the lines of a job that writes 10,000 a second: half a
// second of it in the ordinary run, in which none may be missing.
func TestLinesWithFollowers(t *testing.T) {
	lines, followers := 5000, 20
	if os.Getenv("HORA_SOAK") == "1" {
		lines = 100_000
	}
	s := newSite(t, 1)
	gate := filepath.Join(t.TempDir(), "gate")
	script := fmt.Sprintf(`import os, time
while not os.path.exists(%q): time.sleep(0.01)
begin, out = time.time(), open(1, "w", buffering=1 << 16)
for i in range(%d):
    if i %% 100 == 0:
        out.flush()
        time.sleep(max(0, begin + i / 10000 - time.time()))
    out.write(f"{i} {time.time_ns()}\n")
out.flush()
took = time.time() - begin
`, gate, lines)
	name := filepath.Join(t.TempDir(), "lines.py")
	if err := os.WriteFile(name, []byte(script+`print("took", round(took, 2))`), 0o600); err != nil {
		t.Fatal(err)
	}
	j := s.submit(client.Document{Spec: job.Spec{Command: []string{"python3", name}, NP: 1}})
	late := make([][]time.Duration, followers)
	took := ""
	var wg, ready sync.WaitGroup
	for i := range followers {
		ready.Add(1)
		wg.Go(func() {
			next, once := 0, sync.OnceFunc(ready.Done)
			_, err := s.client.Follow(context.Background(), j.ID, client.Following{
				Rank:  -2,
				State: func(j client.Job) { once() },
				Line: func(l client.Line) {
					number, at, _ := strings.Cut(l.Text, " ")
					if number == "took" {
						if i == 0 {
							took = at
						}
						return
					}
					ns, err := strconv.ParseInt(at, 10, 64)
					if err != nil || number != strconv.Itoa(next) {
						t.Errorf("follower %d: line %d is %q", i, next, l.Text)
					}
					next++
					late[i] = append(late[i], time.Duration(time.Now().UnixNano()-ns))
				},
			})
			if err != nil || next != lines {
				t.Errorf("follower %d saw %d lines of %d, %v", i, next, lines, err)
			}
		})
	}
	ready.Wait()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	all := slices.Concat(late...)
	slices.Sort(all)
	if len(all) == 0 {
		t.Fatal("nobody saw a line")
	}
	t.Logf("%d lines in %s s, %d followers: seen after %v (median), %v (p99), %v (last)", lines, took, followers, all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
}

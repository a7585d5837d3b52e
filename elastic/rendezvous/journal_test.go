package rendezvous

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hora/elastic"
	"hora/internal/secret"
)

// TestACoordinatorTakesOver: the next coordinator knows the members, the store and what has been answered, also where
// the last record is torn; its clients come back by themselves.
func TestACoordinatorTakesOver(t *testing.T) {
	dir, key := t.TempDir(), secret.New()
	addr := ""
	var epochs []uint64
	serve := func(fresh bool) (*Server, *Journal) {
		t.Helper()
		ln, err := net.Listen("tcp", "127.0.0.1:"+addr)
		if err != nil {
			t.Fatal(err)
		}
		_, addr, _ = net.SplitHostPort(ln.Addr().String())
		j, err := OpenJournal(dir, "job", fresh)
		if err != nil {
			t.Fatal(err)
		}
		epochs = nil
		return Serve(context.Background(), ln, Config{
			Secret: key, Job: "job", Size: 2, OnLoss: elastic.Replace, Silence: 5 * time.Second, Journal: j,
			Reported: true,
			OnOpen:   func(epoch uint64, _ []elastic.Place) { epochs = append(epochs, epoch) },
		}), j
	}
	s, j := serve(true)
	if _, err := OpenJournal(dir, "job", false); err == nil || !strings.Contains(err.Error(), "is in use by another job") {
		t.Errorf("a second one opens it: %v", err)
	}
	news := make(chan Notice, 8)
	ctx := within(t, 20*time.Second)
	cs := pair(t, ctx, "127.0.0.1:"+addr, key, news)
	if n, err := cs[0].Add(ctx, "count", 5); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	got := make(chan string, 1)
	go func() {
		v, _ := cs[1].Get(ctx, "later")
		got <- string(v)
	}()
	for range 3 {
		s.Close()
		j.Close()
		f, err := os.OpenFile(filepath.Join(dir, "journal"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte{200, 0, 0, 0, recordRequest, 0, 0, 0, 1, 2, 3})
		f.Close()
		s, j = serve(false)
		if n, err := cs[0].Add(ctx, "count", 1); err != nil || n < 6 {
			t.Fatal(n, err)
		}
	}
	if n, err := cs[1].Add(ctx, "count", 0); n != 8 || err != nil {
		t.Errorf("the count is %d, %v", n, err)
	}
	if err := cs[0].Put(ctx, "later", []byte("now")); err != nil {
		t.Error(err)
	}
	if v := <-got; v != "now" {
		t.Errorf("a Get that waited through three coordinators has %q", v)
	}
	if len(news) > 0 {
		t.Errorf("the workers were told %+v", <-news)
	}
	s.Exited(1, "", "h", "killed by signal 9")
	n := <-news
	if n.Kind == NoticeCut { // the lost one's client, which goes on here, may hear first that it is out
		n = <-news
	}
	if n.Kind != NoticeLost || n.Epoch != 1 || n.Rank != 1 || n.Reason != "killed by signal 9" {
		t.Errorf("notice %+v", n)
	}
	s.Close()
	j.Close()
	if len(epochs) != 1 || epochs[0] != 1 {
		t.Errorf("the last coordinator lived through epochs %v", epochs)
	}
	if _, err := OpenJournal(dir, "other", false); err == nil || !strings.Contains(err.Error(), `of job "job" and not of "other"`) {
		t.Errorf("another job takes it over: %v", err)
	}
}

// TestClosingLosesNobody: the connections that a coordinator ends as it closes are no losses in its journal, or the
// next one would have lost everybody.
func TestClosingLosesNobody(t *testing.T) {
	key := secret.New()
	for range 100 {
		dir := t.TempDir()
		j, err := OpenJournal(dir, "job", true)
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := Serve(context.Background(), ln, Config{
			Secret: key, Job: "job", Size: 2, OnLoss: elastic.Replace, Silence: 5 * time.Second, Journal: j,
		})
		cs := pair(t, within(t, 20*time.Second), ln.Addr().String(), key, make(chan Notice, 8))
		s.Close()
		j.Close()
		for _, c := range cs {
			c.Close()
		}
		if j, err = OpenJournal(dir, "job", false); err != nil {
			t.Fatal(err)
		}
		for _, e := range j.past {
			if e.kind == recordGone {
				t.Fatalf("worker %d is gone: %q", e.worker, e.reason)
			}
		}
		j.Close()
	}
}

// TestASuccessorIsQuickerThanTheNews: a replacement may ask to join when its predecessor's connection has broken and
// the launcher's report is still on its way, or lost. It waits for that and is not refused.
func TestASuccessorIsQuickerThanTheNews(t *testing.T) {
	for _, kept := range []bool{true, false} {
		cfg := Config{
			Secret: secret.New(), Job: "job", Size: 2, OnLoss: elastic.Replace, Silence: 20 * time.Second,
			Reported: true,
		}
		if kept {
			j, err := OpenJournal(t.TempDir(), "job", true)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			cfg.Journal = j
		}
		s, addr := serveTCP(t, cfg)
		news := make(chan Notice, 64)
		ctx := within(t, 40*time.Second)
		cs := pair(t, ctx, addr, cfg.Secret, news)
		for round := range 6 {
			epoch := uint64(round + 2)
			cs[1].Close()
			next, err := Dial(ctx, addr, cfg.Secret, Hello{Job: "job", Rank: 1, Size: 2, Host: "h"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { next.Close() })
			cs[1] = next
			if round%3 == 1 {
				s.Exited(1, "", "h", "killed by signal 9")
			}
			joins := make(chan error, 2)
			join := func(c *Client, rank int) {
				e, err := c.Join(ctx, Member{Rank: rank})
				if err == nil && e.Number != epoch {
					err = fmt.Errorf("rank %d is in epoch %d, not %d", rank, e.Number, epoch)
				}
				joins <- err
			}
			go join(next, 1)
			if round%3 == 2 {
				<-time.After(reportGrace / 3)
				s.Exited(1, "", "h", "killed by signal 9")
			}
			for n := range news {
				if n.Kind == NoticeLost && n.Epoch == epoch-1 {
					break
				}
			}
			go join(cs[0], 0)
			for range 2 {
				if err := <-joins; err != nil {
					t.Fatalf("round %d, journal %v: %v", round, kept, err)
				}
			}
		}
	}
}

// pair starts two workers that have joined.
func pair(t *testing.T, ctx context.Context, addr string, key secret.Secret, news chan Notice) (cs [2]*Client) {
	t.Helper()
	joins := make(chan error, 2)
	for r := range cs {
		c, err := Dial(ctx, addr, key, Hello{
			Job: "job", Rank: r, Size: 2, Host: "h",
			OnNotice: func(n Notice) { news <- n },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		cs[r] = c
		go func() {
			_, err := c.Join(ctx, Member{Rank: r})
			joins <- err
		}()
	}
	for range cs {
		if err := <-joins; err != nil {
			t.Fatal(err)
		}
	}
	return cs
}

// TestAnExitIsAProcess: the launcher's report of a worker that left may come after its successor has joined, with a
// coordinator in a process of its own. It ends nobody but the one it speaks of.
func TestAnExitIsAProcess(t *testing.T) {
	for _, reason := range []string{"", "left the job: as asked"} {
		j, err := OpenJournal(t.TempDir(), "job", true)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		s, addr := serveTCP(t, Config{
			Secret: secret.New(), Job: "job", Size: 1, OnLoss: elastic.Replace, Silence: 20 * time.Second, Reported: true,
			Journal: j,
		})
		ctx := within(t, 40*time.Second)
		start := func(process string) *Client {
			c, err := Dial(ctx, addr, s.cfg.Secret, Hello{
				Job: "job", Rank: 0, Size: 1, Host: "h", Process: process,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
		join := func(c *Client, epoch uint64) {
			if e, err := c.Join(ctx, Member{Rank: 0}); err != nil || e.Number != epoch {
				t.Fatalf("%q: epoch %d, want %d: %v", reason, e.Number, epoch, err)
			}
		}
		one := start("one")
		join(one, 1)
		if err := one.Drain(ctx, "as asked"); err != nil {
			t.Fatal(err)
		}
		two := start("two")
		join(two, 2)
		s.Exited(0, "one", "h", reason)
		if err := two.Put(ctx, "it", []byte("lives")); err != nil {
			t.Fatalf("%q: the successor was ended: %v", reason, err)
		}
		s.Exited(0, "two", "h", "killed by signal 9")
		if err := two.Put(ctx, "it", []byte("lives")); err == nil {
			t.Fatalf("%q: its own end is not heard", reason)
		}
	}
}

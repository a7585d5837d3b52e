package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/elastic"
	"hora/internal/secret"
)

func serveTCP(t *testing.T, cfg Config) (*Server, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(context.Background(), ln, cfg)
	t.Cleanup(func() { s.Close() })
	return s, ln.Addr().String()
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// joined starts size workers and returns their clients and epochs, by the rank they were given.
func joined(t *testing.T, addr string, s secret.Secret, size int, notice func(rank int, n Notice)) ([]*Client,
	[]Epoch,
) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	cs, es := make([]*Client, size), make([]Epoch, size)
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			me := Hello{Rank: r, Size: size, Host: fmt.Sprintf("host%d", r/2)}
			if notice != nil {
				me.OnNotice = func(n Notice) { notice(r, n) }
			}
			if cs[r], errs[r] = Dial(ctx, addr, s, me); errs[r] != nil {
				return
			}
			es[r], errs[r] = cs[r].Join(ctx, Member{Rank: r, Addrs: []string{fmt.Sprintf("10.0.0.%d:1", r)}, Pid: 100 + r})
		})
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
		t.Cleanup(func() { cs[r].Close() })
	}
	return cs, es
}

func TestJoinGivesEveryoneTheSameWorld(t *testing.T) {
	key := secret.New()
	_, addr := serveTCP(t, Config{Secret: key, Size: 4})
	_, es := joined(t, addr, key, 4, nil)
	for r, e := range es {
		if e.Number != 1 || e.Rank != r || e.Size != 4 || len(e.Members) != 4 {
			t.Fatalf("rank %d got epoch %+v", r, e)
		}
	}
	m, ok := es[0].Member(3)
	want := Member{
		Rank: 3, LocalRank: 1, LocalSize: 2, CrossRank: 1, CrossSize: 2, Host: "host1",
		Addrs: []string{"10.0.0.3:1"}, Pid: 103,
	}
	if !ok || fmt.Sprint(m) != fmt.Sprint(want) {
		t.Errorf("member 3 is %+v, want %+v", m, want)
	}
}

func TestStoreWaitsForAKeyAndCounts(t *testing.T) {
	key := secret.New()
	_, addr := serveTCP(t, Config{Secret: key, Size: 2})
	cs, _ := joined(t, addr, key, 2, nil)
	ctx := within(t, 10*time.Second)
	got := make(chan []byte)
	go func() {
		v, err := cs[0].Get(ctx, "weights")
		if err != nil {
			t.Error(err)
		}
		got <- v
	}()
	big := bytes.Repeat([]byte("x"), 3<<20)
	if err := cs[1].Put(ctx, "weights", big); err != nil {
		t.Fatal(err)
	}
	if v := <-got; !bytes.Equal(v, big) {
		t.Errorf("Get returned %d bytes, want %d", len(v), len(big))
	}
	for want := int64(5); want <= 10; want += 5 {
		if n, err := cs[0].Add(ctx, "n", 5); err != nil || n != want {
			t.Errorf("Add = %d, %v; want %d", n, err, want)
		}
	}
	if ok, err := cs[0].Delete(ctx, "n"); !ok || err != nil {
		t.Errorf("Delete = %v, %v", ok, err)
	}
	if _, ok, err := cs[1].Lookup(ctx, "n"); ok || err != nil {
		t.Errorf("Lookup after Delete = %v, %v", ok, err)
	}
	if _, err := cs[0].Add(ctx, "weights", 1); err == nil || !strings.Contains(err.Error(), "no number") {
		t.Errorf("Add to text = %v", err)
	}
	short := within(t, 20*time.Millisecond)
	if _, err := cs[0].Get(short, "absent"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "absent") {
		t.Errorf("Get of an absent key = %v", err)
	}
}

func TestALostWorkerIsNews(t *testing.T) {
	key := secret.New()
	_, addr := serveTCP(t, Config{Secret: key, Size: 3})
	news := make(chan string, 16)
	cs, _ := joined(t, addr, key, 3, func(rank int, n Notice) {
		news <- fmt.Sprintf("%d: %v %d %s %s", rank, n.Kind, n.Rank, n.Host, n.Reason)
	})
	cs[2].conn.Close()
	want := map[string]bool{
		"0: lost 2 host1 closed its connection without leaving": true,
		"1: lost 2 host1 closed its connection without leaving": true,
	}
	for len(want) > 0 {
		n := <-news
		if strings.HasPrefix(n, "2:") {
			continue
		}
		if !want[n] {
			t.Fatalf("news %q", n)
		}
		delete(want, n)
	}
	_, err := cs[0].Join(within(t, 5*time.Second), Member{Rank: 0})
	var j *JoinError
	if !errors.As(err, &j) || !j.Final || !strings.Contains(err.Error(), "rank 2 on host1 was lost") {
		t.Errorf("Join of a job that is over = %v", err)
	}
}

func TestALaunchersReportIsTheBetterReason(t *testing.T) {
	key := secret.New()
	s, addr := serveTCP(t, Config{Secret: key, Size: 2, Reported: true})
	news := make(chan Notice, 4)
	cs, _ := joined(t, addr, key, 2, func(rank int, n Notice) {
		if rank == 0 {
			news <- n
		}
	})
	cs[1].conn.Close()
	s.Exited(1, "", "host0", "killed by signal 9")
	if n := <-news; n.Kind != NoticeLost || n.Reason != "killed by signal 9" {
		t.Errorf("notice %+v", n)
	}
}

// TestWhatTheLauncherKnowsWinsInTheEnd: a report that takes as long as an agent waits for a worker's last output is
// still the reason; one that comes later yet corrects what was told, in the epoch in which the rank was lost.
func TestWhatTheLauncherKnowsWinsInTheEnd(t *testing.T) {
	for _, kept := range []bool{false, true} {
		for _, after := range []time.Duration{reportGrace / 2, 2 * reportGrace} {
			told, causes := make(chan string, 4), make(chan string, 4)
			cfg := Config{
				Secret: secret.New(), Job: "job", Size: 2, OnLoss: elastic.Continue, Reported: true,
				OnLost: func(epoch uint64, rank int, host, reason string) {
					told <- fmt.Sprintf("%d: %d on %s: %s", epoch, rank, host, reason)
				},
				OnCause: func(epoch uint64, rank int, host, reason string) {
					causes <- fmt.Sprintf("%d: %d on %s: %s", epoch, rank, host, reason)
				},
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
			cs := pair(t, within(t, 20*time.Second), addr, cfg.Secret, make(chan Notice, 64))
			cs[1].Close()
			<-time.After(after)
			s.Exited(1, "", "h", "killed by signal 9 (SIGKILL)")
			const want = "1: 1 on h: killed by signal 9 (SIGKILL)"
			got := <-told
			if after > reportGrace {
				if got == want {
					t.Errorf("%v: nobody heard of the loss before its cause was known", after)
				}
				got = <-causes
			}
			if got != want || len(causes) > 0 {
				t.Errorf("%v: %q, want %q; then %d more", after, got, want, len(causes))
			}
			s.Exited(1, "", "h", "exit code 1")
			s.Exited(0, "", "h", "exit code 2")
			if got := <-told; got != "1: 0 on h: exit code 2" || len(causes) > 0 {
				t.Errorf("%v: then %q and %d more causes", after, got, len(causes))
			}
		}
	}
}

func TestAProcessThatNeverJoinedEndsTheWait(t *testing.T) {
	key := secret.New()
	s, addr := serveTCP(t, Config{Secret: key, Size: 2, Reported: true})
	c, err := Dial(within(t, 5*time.Second), addr, key, Hello{Rank: 0, Size: 2, Host: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.Exited(1, "", "b", "exit code 1: ImportError: no numpy")
	_, err = c.Join(within(t, 5*time.Second), Member{})
	if err == nil || !strings.Contains(err.Error(), "rank 1 on b was lost: exit code 1: ImportError: no numpy") {
		t.Errorf("Join = %v", err)
	}
}

func TestJoinNamesWhoIsMissing(t *testing.T) {
	key := secret.New()
	_, addr := serveTCP(t, Config{Secret: key, Size: 3})
	c, err := Dial(within(t, 5*time.Second), addr, key, Hello{Rank: 1, Size: 3, Host: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Join(within(t, 50*time.Millisecond), Member{Rank: 1})
	if err == nil || !strings.Contains(err.Error(), "1 of 3 ranks have joined, missing: 0, 2") {
		t.Errorf("Join = %v", err)
	}
}

func TestASecondInitMeetsInANewEpoch(t *testing.T) {
	key := secret.New()
	_, addr := serveTCP(t, Config{Secret: key, Size: 2})
	cs, _ := joined(t, addr, key, 2, nil)
	for _, c := range cs {
		if err := c.Leave(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	_, es := joined(t, addr, key, 2, nil)
	if es[0].Number != 2 || es[1].Rank != 1 {
		t.Errorf("second epochs are %+v", es)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	key := secret.New()
	s, addr := serveTCP(t, Config{Secret: key, Size: 1})
	garbage, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	garbage.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 100))
	garbage.SetDeadline(time.Now().Add(5 * time.Second))
	if n, err := garbage.Read(make([]byte, 10)); n > 0 || err == nil {
		t.Errorf("a stranger was told %d bytes, %v", n, err)
	}
	if _, err := Dial(within(t, 100*time.Millisecond), addr, secret.New(), Hello{}); err == nil {
		t.Error("a wrong secret was accepted")
	}
	if _, err := Dial(within(t, 5*time.Second), addr, key, Hello{Job: "other"}); err == nil ||
		!strings.Contains(err.Error(), "other") {
		t.Errorf("another job's worker: %v", err)
	}
	if in, _ := s.Bytes(); in != 0 {
		t.Errorf("%d bytes of strangers were read as messages", in)
	}
}

// joinOneSilent has two ranks join. The second never gives another sign of life; what the
// first hears of it goes to news.
func joinOneSilent(t *testing.T, addr string, key secret.Secret, news chan<- Notice) {
	t.Helper()
	ctx := within(t, 10*time.Second)
	var wg sync.WaitGroup
	for r, beat := range []time.Duration{50 * time.Millisecond, time.Hour} {
		me := Hello{Rank: r, Size: 2, Host: "h", Beat: beat}
		if r == 0 {
			me.OnNotice = func(n Notice) { news <- n }
		}
		c, err := Dial(ctx, addr, key, me)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		wg.Go(func() {
			if _, err := c.Join(ctx, Member{Rank: r}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestSilenceIsALoss(t *testing.T) {
	key := secret.New()
	_, addr := serveTCP(t, Config{Secret: key, Size: 2, Silence: 300 * time.Millisecond})
	news := make(chan Notice, 4)
	joinOneSilent(t, addr, key, news)
	if n := <-news; n.Rank != 1 || n.Reason != "silent for 300ms (HORA_PEER_TIMEOUT, hora run --peer-timeout): stuck, or cut off" {
		t.Errorf("notice %+v", n)
	}
}

func TestContinueGoesOnSmaller(t *testing.T) {
	key := secret.New()
	_, addr := serveTCP(t, Config{Secret: key, Size: 3, OnLoss: elastic.Continue})
	cs, _ := joined(t, addr, key, 3, nil)
	cs[0].conn.Close()
	var wg sync.WaitGroup
	for r := 1; r < 3; r++ {
		wg.Go(func() {
			e, err := cs[r].Join(within(t, 5*time.Second), Member{Rank: r})
			if err != nil || e.Number != 2 || e.Rank != r-1 || e.Size != 2 {
				t.Errorf("rank %d: %+v, %v", r, e, err)
			}
		})
	}
	wg.Wait()
}

// TestTheLastFarewellOpensANewcomersEpoch: the farewell and the smaller epoch that follows come of one step.
func TestTheLastFarewellOpensANewcomersEpoch(t *testing.T) {
	key := secret.New()
	_, addr := serveTCP(t, Config{Secret: key, Size: 3, Min: 1, Max: 4, OnLoss: elastic.Continue})
	waits := make(chan struct{}, 3)
	cs, _ := joined(t, addr, key, 3, func(_ int, n Notice) {
		if n.Kind == NoticeChanged {
			waits <- struct{}{}
		}
	})
	ctx := within(t, 20*time.Second)
	late, err := Dial(ctx, addr, key, Hello{Rank: 1, Host: "host9"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { late.Close() })
	opened := make(chan error, 1)
	go func() {
		e, err := late.Join(ctx, Member{Rank: 1})
		if err == nil && (e.Number != 2 || e.Size != 1) {
			err = fmt.Errorf("joined epoch %d of %d", e.Number, e.Size)
		}
		opened <- err
	}()
	<-waits
	for _, c := range cs {
		if err := c.Leave(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// TestAWorkerIsAskedToLeaveBeforeItHasConnected: a launcher knows of a process before the coordinator does. What it
// says is for that process, and not for the one after it.
func TestAWorkerIsAskedToLeaveBeforeItHasConnected(t *testing.T) {
	key := secret.New()
	s, addr := serveTCP(t, Config{Secret: key, Size: 2, OnLoss: elastic.Replace, Reported: true})
	asked := make(chan Notice, 4)
	start := func(rank int) *Client {
		c, err := Dial(within(t, 20*time.Second), addr, key,
			Hello{Rank: rank, Size: 2, Host: "a", OnNotice: func(n Notice) {
				if n.Kind == NoticeDrain {
					asked <- n
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	s.Drain(1, "", "a has 1 slot from now on")
	c := start(1)
	if n := <-asked; n.Reason != "a has 1 slot from now on" {
		t.Errorf("it heard %+v", n)
	}
	s.Drain(1, "", "") // that is taken back
	if n := <-asked; n.Reason != "" {
		t.Errorf("it heard %+v", n)
	}
	if err := c.Drain(within(t, 20*time.Second), "as asked"); err != nil {
		t.Error(err)
	}
	s.Exited(1, "", "a", "left the job: as asked")
	s.Drain(1, "", "once more") // its successor, which is about to connect
	c = start(1)
	if n := <-asked; n.Reason != "once more" {
		t.Errorf("its successor heard %+v", n)
	}
	c.Close()
	s.Drain(0, "", "taken back before it is there")
	s.Drain(0, "", "")
	s.Drain(0, "", "in vain")
	s.Exited(0, "", "a", "exit code 3")
	c = start(0)
	if _, err := c.Add(within(t, 20*time.Second), "any", 1); err != nil { // by now it would have heard
		t.Fatal(err)
	}
	select {
	case n := <-asked:
		t.Errorf("it heard what was said to the process before it: %+v", n)
	default:
	}
}

// TestWhoIsAwaitedAfterAnEpoch: whoever waits for the next one, and the launcher, hear for whom: for members that have
// not joined again, for one that was started and has not come, or for the members of an epoch that is still open.
func TestWhoIsAwaitedAfterAnEpoch(t *testing.T) {
	key := secret.New()
	waits := make(chan Wait, 256)
	s, addr := serveTCP(t, Config{
		Secret: key, Size: 2, Min: 1, Max: 8, Silence: 10 * time.Second, OnLoss: elastic.Continue, Reported: true,
		OnWait: func(w Wait) { waits <- w },
	})
	cs, _ := joined(t, addr, key, 2, nil)
	dial := func(rank int) *Client {
		c, err := Dial(within(t, 20*time.Second), addr, key, Hello{
			Rank: rank, Size: 2, Host: "h", Process: "1",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	hear := func(what string, is func(w Wait) bool) {
		t.Helper()
		for end := within(t, 20*time.Second); ; {
			select {
			case w := <-waits:
				if is(w) {
					return
				}
			case <-end.Done():
				t.Fatal("the launcher does not hear of " + what)
			}
		}
	}
	vain := func(c *Client, until func(), want string) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error, 1)
		go func() {
			_, err := c.Join(ctx, Member{Rank: -1, Host: "h"})
			failed <- err
		}()
		until()
		cancel()
		if err := <-failed; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the wait ends in %v, want %q", err, want)
		}
	}
	newcomer := dial(2)
	vain(newcomer, func() {
		hear("a newcomer", func(w Wait) bool { return w.Beside && w.Joined == 1 && w.Behind == nil })
	}, "the members of epoch 1 have not come to the commit")
	vain(cs[0], func() {
		hear("a member that is behind", func(w Wait) bool { return !w.Beside && slices.Equal(w.Behind, []int{1}) })
		s.Coming(3, "1", true, true)
	}, "rank 1 was in epoch 1 and has not joined again")
	vain(cs[1], func() {
		hear("one that was started", func(w Wait) bool { return !w.Beside && slices.Equal(w.Coming, []int{3}) })
	}, "rank 3 was started and has not joined")
}

// TestWhatAProcessIsAskedOutlivesItsConnection: one that breaks before the worker has heard that it is in is followed
// by another, which is a new one to the coordinator.
func TestWhatAProcessIsAskedOutlivesItsConnection(t *testing.T) {
	key := secret.New()
	for _, known := range []bool{false, true} { // whether the first one's end is known when the second comes
		s, addr := serveTCP(t, Config{Secret: key, Job: "job", Size: 1, OnLoss: elastic.Continue, Reported: true})
		ctx := within(t, 5*time.Second)
		news := make(chan Notice, 8)
		me := Hello{
			Job: "job", Rank: 0, Size: 1, Host: "a", Process: "1", OnNotice: func(n Notice) { news <- n },
		}
		first, err := Dial(ctx, addr, key, me)
		if err != nil {
			t.Fatal(err)
		}
		s.Drain(0, "", "as asked")
		if n := <-news; n.Kind != NoticeDrain {
			t.Fatalf("%+v", n)
		}
		if known {
			first.Close()
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for end := false; !end; <-tick.C {
				s.mu.Lock()
				end = len(s.conns) == 0
				s.mu.Unlock()
			}
		} else {
			defer first.Close()
		}
		second, err := Dial(ctx, addr, key, me)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		for asked := false; !asked; {
			select {
			case n := <-news:
				asked = n.Kind == NoticeDrain && n.Reason == "as asked"
			case <-ctx.Done():
				t.Fatalf("the first one's end is known: %v; nobody asks the second one to leave", known)
			}
		}
	}
}

// TestALossThatOpensAnEpochEndedTheOneBefore: where the others knew of it first and wait for the next epoch, the report
// of a worker's end opens that; the worker was lost in the one before.
func TestALossThatOpensAnEpochEndedTheOneBefore(t *testing.T) {
	told := make(chan string, 4)
	key := secret.New()
	s, addr := serveTCP(t, Config{
		Secret: key, Size: 2, OnLoss: elastic.Continue, Reported: true,
		OnLost: func(epoch uint64, rank int, _, reason string) { told <- fmt.Sprintf("%d: %d: %s", epoch, rank, reason) },
	})
	cs, _ := joined(t, addr, key, 2, nil)
	next := make(chan Epoch, 1)
	go func() {
		e, err := cs[0].Join(within(t, 20*time.Second), Member{Rank: 0})
		if err != nil {
			t.Error(err)
		}
		next <- e
	}()
	if got := <-told; got != "1: -1: rank 0 asked for a new epoch" {
		t.Error(got)
	}
	s.Exited(1, "", "host0", "killed by signal 9 (SIGKILL)")
	if got := <-told; got != "1: 1: killed by signal 9 (SIGKILL)" {
		t.Error(got)
	}
	if e := <-next; e.Number != 2 || e.Size != 1 {
		t.Errorf("%+v", e)
	}
}

// TestAWordToAProcessIsNotItsSuccessors: a process may end, and the next one of its rank connect, while the order that
// it is to leave is on its way.
func TestAWordToAProcessIsNotItsSuccessors(t *testing.T) {
	key := secret.New()
	s, addr := serveTCP(t, Config{Secret: key, Job: "job", Size: 1, OnLoss: elastic.Continue, Reported: true})
	ctx := within(t, 5*time.Second)
	news := make(chan Notice, 8)
	second, err := Dial(ctx, addr, key, Hello{
		Job: "job", Rank: 0, Size: 1, Host: "a", Process: "2", OnNotice: func(n Notice) { news <- n },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	s.Drain(0, "1", "meant for the first")
	s.Exited(0, "1", "a", "")
	s.Drain(0, "2", "meant for the second")
	select {
	case n := <-news:
		if n.Kind != NoticeDrain || n.Reason != "meant for the second" {
			t.Errorf("the second process hears %+v", n)
		}
	case <-ctx.Done():
		t.Error("the second process is asked nothing")
	}
}

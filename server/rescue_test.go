package server_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hora/event"
	"hora/job"
	"hora/server/backend"
	"hora/server/client"
)

// hanging is a file of which nothing comes until nobody waits for it any more.
func hanging(path string, left chan<- string) *backend.Artifact {
	return &backend.Artifact{Path: path, Open: func(ctx context.Context) (io.ReadCloser, error) {
		<-ctx.Done()
		left <- path
		return nil, ctx.Err()
	}}
}

// TestAJobGoesOnWhileWhatItLeftIsFetched: files of zones that it has left hold up nothing of what it says, be it that
// nothing comes of one. Each is asked for by itself, and none again that is kept. What is there in the end is taken
// over them.
func TestAJobGoesOnWhileWhatItLeftIsFetched(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c := newCluster(t, map[string]int{"east": 1, "west": 1})
	s := newSite(t, c)
	id := s.submit(2, 0)
	g := c.gang(id, 1)
	c.mu.Lock()
	second := g.is.Shares[1].Node
	c.mu.Unlock()
	left := make(chan string, 10)
	var asked, good atomic.Int64
	file := fileOf("good", "yesterday's")
	once := &backend.Artifact{Path: "good", Open: func(ctx context.Context) (io.ReadCloser, error) {
		good.Add(1)
		return file.Open(ctx)
	}}
	failing := &backend.Artifact{Path: "slow", Open: func(ctx context.Context) (io.ReadCloser, error) {
		if asked.Add(1) < 3 {
			return nil, errors.New("the link broke")
		}
		return fileOf("slow", "at last").Open(ctx)
	}}
	g.see(backend.Record{From: "north", Artifact: hanging("hangs", left)})
	g.see(backend.Record{From: second, Artifact: failing})
	g.see(backend.Record{From: second, Artifact: once})
	g.say(0, "on")
	s.becomes("what it says is heard", func() bool { return strings.Contains(s.wrote(id), "on") })
	s.becomes("what it left is kept", func() bool {
		is := s.kept(id)
		return is["good"] == "yesterday's" && is["slow"] == "at last"
	})
	if n := good.Load(); n != 1 {
		t.Errorf("a file that was kept was asked for %d times", n)
	}
	c.with(func() {
		g.left = []backend.Record{{At: time.Now(), From: second, Artifact: fileOf("good", "today's")}}
	})
	g.exit(0)
	s.ends(id, job.Finished)
	if is := s.kept(id); len(is) != 2 || is["good"] != "today's" {
		t.Errorf("in the end there is %v", is)
	}
	c.forgotten(id, 1)
	if name := <-left; name != "hangs" || len(left) != 0 {
		t.Errorf("of %s it is let go, and %d more", name, len(left))
	}
	if text := s.story(id); strings.Contains(text, "could not be kept") {
		t.Errorf("its story is %q", text)
	}
}

// TestAGangThatHadOpenedOverARestart: what has opened sees for itself who is lost. So a server that is started again
// does not end it with a zone that it cannot reach.
func TestAGangThatHadOpenedOverARestart(t *testing.T) {
	c := newCluster(t, map[string]int{"east": 2, "west": 2})
	s := newSite(t, c)
	id := s.submit(3, 0)
	g := c.gang(id, 1)
	c.mu.Lock()
	second := g.is.Shares[1].Node
	c.mu.Unlock()
	opened, err := event.Marshal(&event.Opened{Epoch: 1, Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	g.tell(backend.Record{Event: opened})
	g.say(0, "before")
	s.becomes("it is heard", func() bool { return strings.Contains(s.wrote(id), "before") })
	s.close()
	s.up()
	gone := &backend.Lost{Node: second, Patience: time.Minute}
	g.see(backend.Record{Parted: &backend.Parted{Node: second, Err: gone}})
	g.say(0, "after")
	s.becomes("it is heard", func() bool { return strings.Contains(s.wrote(id), "after") })
	g.exit(0)
	if j := s.ends(id, job.Finished); len(j.Attempts) != 1 || j.Attempts[0].Outcome != client.Success {
		t.Errorf("its attempts are %+v", j.Attempts)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if kills := c.kills[[2]int64{id, 1}]; len(kills) != 0 {
		t.Errorf("it was killed: %v", kills)
	}
}
